# SPDX-License-Identifier: GPL-2.0-or-later
import os
import sys

import pytest
from virtualcluster import Cluster
from virtualcluster.cluster import CHECKOUT, releases

sys.path.insert(0, os.path.dirname(__file__))

import scenarios  # noqa: E402

PLUGINS = {"SelectType": "select/cons_tres_singularity", "PriorityType": "priority/singularity", "JobSubmitPlugins": "singularity"}
PLUGSTACK = "required spank_singularity.so\n"


def pytest_addoption(parser):
    parser.addoption("--release", required=True, choices=list(releases()), help="release of Slurm to test with")


@pytest.fixture(scope="session")
def release(request):
    return request.config.getoption("--release")


# Of clusters on which elastic steps run.
METRICS = "/run/agent.prom"
AGENTS_YAML = f"agents:\n  address: 0.0.0.0\n  patience: 10s\n  metrics: {METRICS}\nstore:\n  directory: /shared/store\n"


def elastic_up(release, yaml="", **spec):
    made = up(release, True, singularity_yaml=AGENTS_YAML + yaml, **spec)
    made.start_agents()
    return made


def up(release, plugins, conf=None, **spec):
    spec = {"partitions": scenarios.PARTITIONS, "plugin": plugins, "plugstack": PLUGSTACK if plugins else "", **spec}
    conf = {**scenarios.CONF, **(PLUGINS if plugins else {}), **(conf or {})}
    return Cluster.up(owner=os.getpid(), slurm=release, conf=conf, **spec)


@pytest.fixture(scope="module")
def stock(release):
    with up(release, False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ours(release):
    with elastic_up(release) as cluster:
        yield cluster


@pytest.fixture
def make(release):
    """Makes clusters of the release, with our plugins unless told otherwise, which end with the test."""
    made = []

    def make_one(**spec):
        made.append(up(release, spec.pop("plugin", True), **spec))
        return made[-1]

    yield make_one
    for cluster in made:
        if os.path.isdir(cluster.directory):
            cluster.down()


@pytest.fixture(scope="session")
def version(release):
    """The exact release in the root, e.g. 24.11.5, from the public header."""
    from virtualcluster.cluster import _root_directory

    with open(os.path.join(_root_directory(release), "usr/include/slurm/slurm_version.h"), encoding="utf-8") as file:
        number = int(file.read().partition("SLURM_VERSION_NUMBER 0x")[2].split()[0], 16)
    return f"{number >> 16}.{number >> 8 & 255:02}.{number & 255}"


@pytest.fixture(scope="session")
def has_table(version):
    return os.path.exists(os.path.join(CHECKOUT, "select-plugin/slurm-abi", f"{version}.json"))
