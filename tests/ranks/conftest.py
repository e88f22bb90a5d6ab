# SPDX-License-Identifier: GPL-2.0-or-later
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rankhosts import RankHosts  # noqa: E402


@pytest.fixture(scope="module", name="shared_hosts")
def three_hosts(request):
    hosts = RankHosts(3, **getattr(request.module, "HOSTS", {}))
    yield hosts
    hosts.close()


@pytest.fixture(name="hosts")
def clean_hosts(shared_hosts):
    yield shared_hosts
    for name in shared_hosts.names:
        for job in shared_hosts.jobs(name, user="root"):
            shared_hosts.ctl(name, "destroy", job, user="root")
    shared_hosts.assert_clean()
