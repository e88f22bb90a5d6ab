# SPDX-License-Identifier: GPL-2.0-or-later
import hostile
import nodes
import pytest
import saved_nodes
import test_programs


def pytest_addoption(parser):
    parser.addoption("--part", metavar="N/M", default="1/1", help="only every Mth test, from the Nth on")


def pytest_collection_modifyitems(config, items):
    first, step = map(int, config.getoption("--part").split("/"))
    items[:] = items[first - 1::step]


@pytest.fixture(scope="session", autouse=True)
def _mounts():
    nodes.private_mounts()


@pytest.fixture
def place(_mounts):
    one = nodes.Place()
    yield one
    one.remove()


@pytest.fixture(scope="session")
def undisturbed(_mounts):
    """The output of each program when nobody interrupts it."""
    outputs = {}

    def of(name):
        if name not in outputs:
            place = nodes.Place()
            try:
                node, _ = test_programs.start(place, name)
                assert node.wait() == 0, place.output()
                outputs[name] = place.output()
            finally:
                place.remove()
        return outputs[name]

    return of


@pytest.fixture
def agent(_mounts):
    one = saved_nodes.Agent()
    yield one
    one.close()


@pytest.fixture(scope="module")
def scene(_mounts):
    """For hostile images: a program's checkpoint, which still restores when all tests of the file have done what they did."""
    one = hostile.Scene()
    try:
        yield one
        one.still_restores()
        one.agent.store_is_whole()
    finally:
        one.close()
