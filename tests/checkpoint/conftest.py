# SPDX-License-Identifier: GPL-2.0-or-later
import nodes
import pytest


@pytest.fixture(scope="session", autouse=True)
def _mounts():
    nodes.private_mounts()


@pytest.fixture
def place(_mounts):
    one = nodes.Place()
    yield one
    one.remove()
