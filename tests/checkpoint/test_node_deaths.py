# SPDX-License-Identifier: GPL-2.0-or-later
"""kill -9 of everybody who takes part in a checkpoint or a restore, at random moments: the program runs on, or the last
checkpoint restores; the output is that of an undisturbed run, the store is whole, nothing is left behind."""

import contextlib
import os
import random
import signal
import subprocess
import time

import pytest
import saved_nodes
import virtualnode
from saved_nodes import PATIENCE, SEED, USER, built

COUNT = "i=0; while [ $i -lt 120 ]; do echo line $i; i=$((i+1)); sleep 0.05; done"
TIMES = 4
# What runs: command, devices.
PROGRAMS = {
    "shell": (["/bin/sh", "-c", COUNT], 0),
    "cuda": (["/bin/sh", "-c", f"for i in 1 2 3 4 5; do {built('workloads', 'train_digits')} || exit 1; done"], 1),
}


def start(agent, *words):
    return subprocess.Popen(agent.command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            cwd="/", user=USER, group=USER, extra_groups=[])


def kill(agent, node, victim):
    if victim == "agent":
        agent.kill()
        agent.start()
        return
    for pid in agent.workers() if victim == "worker" else agent.proxies(node):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def settled(agent, node):
    """Whether the node is in no state in between."""
    return agent.nodes().get(node, ("gone", ""))[0] in ("running", "gone")


@pytest.mark.parametrize("victim", ["worker", "agent", "proxy"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_deaths(agent, name, victim):
    command, devices = PROGRAMS[name]
    if victim == "proxy" and not devices:
        pytest.skip("it has no proxy")
    wanted, _ = saved_nodes.undisturbed(command, devices)
    chance = random.Random(f"{SEED} {name} {victim}")
    node = agent.run(command, devices)
    time.sleep(0.3)
    agent.ok("checkpoint", "--continue", node)
    survived = 0
    for _ in range(TIMES):
        doing = ["checkpoint", *(["--continue"] if chance.random() < 0.5 else []), node]
        if node not in agent.nodes():
            doing = ["restore", node]
        asking = start(agent, *doing)
        time.sleep(chance.uniform(0, 0.6))
        kill(agent, node, victim)
        out, err = asking.communicate(timeout=PATIENCE)
        virtualnode.wait_for(lambda: settled(agent, node), f"{node} to settle after the {victim}'s death in {doing}", PATIENCE)
        print(f"seed {SEED}: {doing[:-1]}: {asking.returncode} {err.splitlines()[-1:]}")
        if node in agent.nodes() and (victim == "proxy" or "signal" in agent.task(node)):
            agent.ctl("destroy", node, user=USER)  # its device is lost
        survived += 1
    if node not in agent.nodes():
        agent.ok("restore", node)
    assert agent.finish(node) == wanted, f"seed {SEED}\n{agent.log()}"
    agent.ok("destroy", node)
    virtualnode.wait_for(lambda: not agent.leftovers() and not agent.workers(), "everything to be gone")
    agent.store_is_whole()
    print(f"{survived} points tried, {survived} survived")


@pytest.mark.parametrize("victims", ["worker", "worker and agent"])
def test_no_recovery(agent, victims):
    """A node that stands still and that nobody can let go on is ended, and says so."""
    agent.kill(signal.SIGTERM)
    libraries = os.path.join(agent.directory, "libraries")
    agent.environment = {"SINGULARITY_LIBDIR": libraries}
    os.mkdir(libraries)
    for name in ("singularity-init", "singularity-worker"):
        os.symlink(built(name), os.path.join(libraries, name))
    agent.start()
    node = agent.run(["/bin/sleep", "1000"])
    mark = os.path.join(agent.state, node, "worker")
    asking = start(agent, "checkpoint", node)
    virtualnode.wait_for(lambda: os.path.exists(mark), "the worker to begin", PATIENCE)
    (worker,) = agent.workers()
    os.kill(worker, signal.SIGSTOP)
    assert agent.nodes()[node][0] == "saving"
    os.remove(os.path.join(libraries, "singularity-worker"))
    if "agent" in victims:
        agent.kill()
    os.kill(worker, signal.SIGKILL)
    if "agent" in victims:
        agent.start()
    _, err = asking.communicate(timeout=PATIENCE)
    words = "the process that saved it has died, and none can be started that lets it go on, so it is ended"
    assert words in (agent.log() if "agent" in victims else err), f"{err}\n{agent.log()}"
    virtualnode.wait_for(lambda: not agent.leftovers(), "everything to be gone", PATIENCE)


def test_staging_after_a_worker(agent):
    """What a worker leaves that dies while the node runs again goes at once; the next checkpoint is as any other."""
    program = "import os, time; memory = os.urandom(256 << 20); print('up', flush=True); time.sleep(1000)"
    node = agent.run(["/usr/bin/python3", "-c", program])
    staging = os.path.join(agent.staging, node)
    virtualnode.wait_for(lambda: agent.output(node), "the program", PATIENCE)
    asking = start(agent, "checkpoint", "--continue", node)
    virtualnode.wait_for(lambda: os.path.exists(staging) and agent.nodes()[node][0] == "running", "the node to run on", PATIENCE)
    (worker,) = agent.workers()
    os.kill(worker, signal.SIGSTOP)
    assert os.listdir(staging)
    os.kill(worker, signal.SIGKILL)
    _, err = asking.communicate(timeout=PATIENCE)
    assert "has died; it runs on" in err, f"{err}\n{agent.log()}"
    virtualnode.wait_for(lambda: not os.path.exists(staging), "what it has left to be removed", PATIENCE)
    virtualnode.wait_for(lambda: agent.ctl("checkpoint", node, user=USER).returncode == 0, "a checkpoint", PATIENCE)
    assert not agent.leftovers()
    agent.store_is_whole()


def test_staging_of_nodes_that_are_gone(agent):
    """An agent that starts removes it, however often one was killed while it did."""
    agent.kill()
    for name in ("u1001-1", ".u1001-1.0"):
        os.makedirs(os.path.join(agent.staging, name, "image-0", "host"))
    with open(os.path.join(agent.staging, "u1001-1", "image-0", "pages-1.img"), "wb") as file:
        file.truncate(1 << 20)
    agent.start()
    virtualnode.wait_for(lambda: not os.listdir(agent.staging), "the staging directory to be empty", PATIENCE)
