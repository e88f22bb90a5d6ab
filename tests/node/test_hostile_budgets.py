# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes of root's and descriptors of the agent's that a user can have as many of as requests: each user has a share, hears when it is
used up, and others go on."""

import contextlib
import errno
import os
import pathlib
import re
import tempfile

import pytest
import virtualnode
from virtualnode import ALICE, BOB, BUILD, KEPT, Refused, text, wait_for

PROGRESS, CHECKPOINT, RESTORE = 82, 80, 81  # spank/agent/protocol/agent_messages.hpp
NOTHING = text("nothing") + b"\0" * 9  # to be restored: on how many proxies, where, detached
SETTINGS = """agents:
  run_without_slurm: true
  metrics: {metrics}
per_user: {{restores: 64, workers: {workers}, tasks: {tasks}}}
"""


def metric(agent, name, budget):
    with contextlib.suppress(FileNotFoundError):
        found = re.search(rf'^singularity_{name}{{budget="{budget}"}} (\d+)$', agent.metrics.read_text(), re.MULTILINE)
        return int(found[1])
    return None


@pytest.fixture(name="make")
def agents(tmp_path):
    made = []

    def make_one(workers=256, tasks=16384, **environment):
        metrics = tmp_path / "agent.prom"
        made.append(virtualnode.Agent(settings=SETTINGS.format(metrics=metrics, workers=workers, tasks=tasks), **environment))
        made[0].metrics = metrics
        return made[0]
    yield make_one
    for one in made:
        one.close()


@pytest.fixture(name="gate")
def closed_gate():
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="singularity-gate-") as place:
        yield Gate(pathlib.Path(place))


class Gate:
    """A libexec directory whose workers do nothing as long as a file is there."""

    def __init__(self, place):
        os.chmod(place, 0o755)  # init is run as its user
        self.file = place / "gate"
        self.file.touch()
        self.directory = place / "lib"
        self.directory.mkdir()
        for name in os.listdir(BUILD):
            if name != "singularity-worker":
                (self.directory / name).symlink_to(os.path.join(BUILD, name))
        worker = self.directory / "singularity-worker"
        worker.write_text(f"#!/bin/sh\nwhile [ -e {self.file} ]; do sleep 0.1; done\nexec {BUILD}/singularity-worker\n")
        worker.chmod(0o755)

    def waiting(self):
        """Process ids of those workers."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
                if str(self.directory / "singularity-worker").encode() in file.read():
                    found.append(int(name))
        return found


def outcome(connection, token):
    """What becomes of a request at last."""
    with pytest.raises(Refused) as refused:
        while connection.answer(token)[0] == PROGRESS:
            pass
    return refused.value


def test_workers(make, gate):
    """Each is a process of root's. No user keeps more of them than their share, whatever they ask for."""
    agent = make(workers=8, SINGULARITY_LIBDIR=str(gate.directory))
    with agent.connect(ALICE) as alice, agent.connect(BOB) as bob:
        node, _ = alice.create(uid=ALICE, gid=ALICE)
        alice.start(node, ["/bin/sleep", "1000"], stdio=KEPT)
        asked = [alice.send(RESTORE, NOTHING) for _ in range(30)]
        said = f"uid {ALICE} has 8 processes that save, restore or remove something already, and per_user.workers in singularity.yaml allows 8"
        for token in asked[8:]:
            refused = outcome(alice, token)
            assert said in str(refused) and refused.code == errno.EDQUOT
        with pytest.raises(Refused, match=said):
            alice.ask(CHECKPOINT, text(node) + b"\1")
        wait_for(lambda: len(gate.waiting()) == 8, "the workers to wait")
        # Another has a share of their own: the worker waits at the gate, and not for a place.
        token = bob.send(RESTORE, NOTHING)
        wait_for(lambda: len(gate.waiting()) == 9, "a worker for another user")
        other, _ = bob.create(uid=BOB, gid=BOB)
        assert bob.run(other, ["/bin/echo", "served"]) == (0, "served\n")
        wait_for(lambda: metric(agent, "held_for_one_user", "workers") == 8, "the metrics")
        assert metric(agent, "held_for_users", "workers") == 9
        assert metric(agent, "requests_over_budget_total", "workers") == 23
        gate.file.unlink()
        for connection, one in [(alice, token) for token in asked[:8]] + [(bob, token)]:
            assert "cannot use the store" in str(outcome(connection, one))
        # What has ended is given back.
        wait_for(lambda: not gate.waiting(), "the workers to end")
        assert "cannot use the store" in str(outcome(alice, alice.send(RESTORE, NOTHING)))


def test_periodic_checkpoints_wait(make, gate):
    """Nobody asks for them by hand, so nobody could try again."""
    agent = make(workers=8, SINGULARITY_LIBDIR=str(gate.directory))
    with agent.connect(ALICE) as alice:
        asked = [alice.send(RESTORE, NOTHING) for _ in range(8)]
        node, _ = alice.create(uid=ALICE, gid=ALICE, every=1)
        alice.start(node, ["/bin/sleep", "1000"], stdio=KEPT)
        wait_for(lambda: f"{node} waits: uid {ALICE} has 8 processes" in agent.log(), "the checkpoint to wait")
        assert len(gate.waiting()) == 8
        gate.file.unlink()
        for token in asked:
            outcome(alice, token)

        def begun():
            """One that has come to an end: not every machine of this test's can save anything."""
            found = re.findall(r'^singularity_checkpoints_total{kind="periodic",outcome="[a-z]+"} (\d+)$', agent.metrics.read_text(), re.MULTILINE)
            return any(map(int, found))
        wait_for(begun, "a checkpoint")
        assert agent.log().count(f"{node} waits:") == 1


def test_tasks(make):
    """The agent has descriptors of each until somebody has waited for it."""
    agent = make(tasks=4)
    with agent.connect(ALICE) as alice, agent.connect(BOB) as bob:
        node, _ = alice.create(uid=ALICE, gid=ALICE)
        second, _ = alice.create(uid=ALICE, gid=ALICE)
        tasks = [alice.start(one, ["/bin/true"], stdio=KEPT)[0] for one in (node, node, second, second)]
        for one in (node, second):
            said = f"uid {ALICE} has 4 tasks of virtual nodes already, and per_user.tasks in singularity.yaml allows 4"
            with pytest.raises(Refused, match=said) as refused:
                alice.start(one, ["/bin/true"], stdio=KEPT)
            assert refused.value.code == errno.EDQUOT
        other, _ = bob.create(uid=BOB, gid=BOB)
        for _ in range(8):
            assert bob.run(other, ["/bin/echo", "served"]) == (0, "served\n")
        alice.wait(node, tasks[0], forget=True)
        assert alice.run(node, ["/bin/echo", "again"]) == (0, "again\n")
        # Init answers in order: with this answer it has forgotten the two that were waited for.
        with pytest.raises(Refused, match="No such file"):
            alice.start(node, ["/nowhere"], stdio=KEPT)
        # An agent that comes again finds what there is, and counts it.
        agent.kill()
        agent.start()
    with agent.connect(ALICE) as alice:
        wait_for(lambda: all(state == "running" for state, _ in alice.nodes().values()), "nodes to be found again")
        alice.start(node, ["/bin/true"], stdio=KEPT)
        with pytest.raises(Refused, match="per_user.tasks"):
            alice.start(second, ["/bin/true"], stdio=KEPT)
        alice.destroy(second)
        alice.start(node, ["/bin/true"], stdio=KEPT)
    wait_for(lambda: metric(agent, "requests_over_budget_total", "tasks") == 1, "the metrics")
    assert metric(agent, "held_for_one_user", "tasks") <= 4
