# SPDX-License-Identifier: GPL-2.0-or-later
"""An agent that is started again and has not enough descriptors: what the one before it has left stays, and is found once there are."""

import contextlib
import errno
import os
import re
import signal
import socket

import pytest
import virtualnode
from virtualnode import ALICE, BOB, KEPT, PATIENCE, Refused, wait_for

SETTINGS = "agents:\n  run_without_slurm: true\n  metrics: {metrics}\n"
SERVING = "serving on"


@pytest.fixture(name="agent")
def agent_with_metrics(tmp_path):
    metrics = tmp_path / "agent.prom"
    agent = virtualnode.Agent(settings=SETTINGS.format(metrics=metrics))
    agent.metrics = metrics
    yield agent
    agent.descriptors = None
    agent.close()


def start_with(agent, descriptors):
    """Until it has looked at its records. False: it has ended, as it could not even do that."""
    before = agent.log().count(SERVING)
    agent.descriptors = descriptors
    agent.begin()
    wait_for(lambda: agent.log().count(SERVING) > before or agent.process.poll() is not None, "it to look")
    return agent.process.poll() is None


def files_below(*places):
    return sorted(os.path.join(place, name) for place in places for name in os.listdir(place))


def waiting(agent):
    found = re.search(r"^singularity_records_waiting (\d+)$", agent.metrics.read_text(), re.MULTILINE)
    return int(found[1])


@contextlib.contextmanager
def unreadable(agent, *directories):
    """Their records, for an agent that is started meanwhile: to open one is an error that says nothing of what runs."""
    for directory in directories:
        os.rename(os.path.join(directory, "record"), os.path.join(directory, "there"))
        os.symlink("there", os.path.join(directory, "record"))
    agent.begin()
    yield
    for directory in directories:
        os.rename(os.path.join(directory, "there"), os.path.join(directory, "record"))
    wait_for(lambda: "all records of the earlier agent have been looked at" in agent.log(), "what has waited to be found", 2 * PATIENCE)


def begin_node(connection, uid):
    name, _ = connection.create(uid=uid, gid=uid)
    number, _ = connection.start(name, ["sh", "-c", "echo begun; exec sleep 1000"], stdio=KEPT)
    wait_for(lambda: connection.log(name, number) == b"begun\n", "its task to run")
    return name, number


def test_nodes_stay_with_any_number_of_descriptors(agent):
    """Whichever of its openings fails: nothing is removed, nothing is ended."""
    with agent.connect() as root:
        nodes = [begin_node(root, uid) for uid in (ALICE, BOB, ALICE, BOB)]
    inits = sorted(agent.init_pids())
    agent.kill()
    left = files_below(agent.state)
    assert len(inits) == len(nodes) == len(left)
    served = 0
    for descriptors in range(5, 120):
        served += start_with(agent, descriptors)
        agent.kill()
        assert files_below(agent.state) == left, f"with {descriptors} descriptors:\n{agent.log()}"
    assert sorted(agent.init_pids()) == inits and served
    agent.descriptors = None
    agent.start()
    with agent.connect() as root:
        for name, number in nodes:
            assert root.log(name, number) == b"begun\n"
            root.signal(name, number, signal.SIGTERM)
            assert root.wait(name, number) == (signal.SIGTERM, False)
            root.destroy(name)


def test_a_node_whose_record_cannot_be_read_is_found_later(agent):
    with agent.connect() as root:
        nodes = [begin_node(root, uid) for uid in (ALICE, BOB)]
    agent.kill()
    with unreadable(agent, os.path.join(agent.state, nodes[0][0])):
        wait_for(lambda: agent.metrics.exists() and waiting(agent) == 1, "the metrics", PATIENCE)
        wait_for(agent.serves, "the 10 s to pass in which it serves nobody")
        with agent.connect() as root:
            name, number = nodes[0]
            with pytest.raises(Refused, match="could not be looked at yet since this host's agent was started: try again") as refused:
                root.wait(name, number)
            assert refused.value.code == errno.EAGAIN
            with pytest.raises(Refused, match="there is one of that name"):
                root.create(name=name, uid=ALICE, gid=ALICE)
            assert root.run(nodes[1][0], ["echo", "there"]) == (0, "there\n")
    with agent.connect() as root:
        for name, number in nodes:
            wait_for(lambda one=name: root.run(one, ["echo", "there"]) == (0, "there\n"), "it to be served")
            root.signal(name, number, signal.SIGTERM)
            assert root.wait(name, number) == (signal.SIGTERM, False)
            root.destroy(name)
    wait_for(lambda: waiting(agent) == 0, "the metrics", PATIENCE)


def test_jobs_stay_and_go_on(agent):
    """Of the host that coordinates one, and of one that has a part of it."""
    gate = os.path.join(agent.directory, "gate")
    script = f"echo up $RANK; while [ ! -e {gate} ]; do sleep 0.02; done; echo down $RANK"
    begun = agent.ctl("run", "--detach", "--hosts", socket.gethostname().split(".", maxsplit=1)[0], "--ranks-per-node", "3", "--", "sh", "-c", script)
    assert begun.returncode == 0, begun.stderr + agent.log()
    job = begun.stdout.strip()
    wait_for(lambda: agent.ctl("logs", job).stdout.count("up") == 3, f"its ranks to run: {agent.log()}")
    agent.kill()
    places = [os.path.join(agent.directory, name) for name in ("nodes", "jobs", "members")]
    left = files_below(*places)
    assert len(left) == 3
    for descriptors in range(5, 120):
        start_with(agent, descriptors)
        agent.kill()
        assert files_below(*places) == left, f"with {descriptors} descriptors:\n{agent.log()}"
    agent.descriptors = None
    with unreadable(agent, *(one for one in left if "/nodes/" not in one)):
        wait_for(lambda: agent.metrics.exists() and waiting(agent) == 2, "the metrics", PATIENCE)
    with open(gate, "w", encoding="ascii"):
        pass
    wait_for(lambda: "ended" in agent.ctl("ps").stdout, f"the job to end: {agent.log()}")
    assert "exit 0" in agent.ctl("ps").stdout
    assert sorted(agent.ctl("logs", job).stdout.split()) == ["0", "0", "1", "1", "2", "2", "down", "down", "down", "up", "up", "up"]
    agent.ctl("destroy", job)
    wait_for(lambda: not files_below(*places) and not agent.leftovers(), "nothing to be left")
