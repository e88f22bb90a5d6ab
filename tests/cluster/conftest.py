# SPDX-License-Identifier: GPL-2.0-or-later
import os

import pytest
from virtualcluster import Cluster


@pytest.fixture
def make_cluster():
    """Makes clusters that end with the test, or with this process if it is killed."""
    made = []

    def make(**spec):
        cluster = Cluster.up(owner=os.getpid(), **spec)
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        if os.path.isdir(cluster.directory):
            cluster.down()
