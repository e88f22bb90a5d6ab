# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from wiring import Wiring, run


@pytest.fixture(name="wiring")
def make_wiring(tmp_path):
    wiring = Wiring(tmp_path)
    yield wiring
    wiring.close()


@pytest.fixture(name="world")
def make_world(wiring):
    """Two hosts of the cluster that forward, as the agent has them do, and one outside."""
    hosts = [wiring.host(number) for number in (1, 2, 3)]
    for host in hosts[:2]:
        run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward", pid=host.pid)
    return hosts
