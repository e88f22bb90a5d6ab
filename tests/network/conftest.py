# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from wiring import Wiring


@pytest.fixture(name="wiring")
def make_wiring(tmp_path):
    wiring = Wiring(tmp_path)
    yield wiring
    wiring.close()
