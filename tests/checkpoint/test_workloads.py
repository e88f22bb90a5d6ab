# SPDX-License-Identifier: GPL-2.0-or-later
"""Every workload in a virtual node: saved at random moments with its devices, everything ended, restored; the output is that
of undisturbed runs, to the bit."""

import os
import random
import time

import pytest
import saved_nodes
from saved_nodes import PATIENCE, SEED, USER, built

SAVES = 5
# At some moments a program cannot be saved, for the reason that is said.
REFUSED = {"error_behaviour": "its context has failed"}
WORKLOADS = saved_nodes.workloads()


@pytest.fixture(name="end")
def end_of_the_loop(agent):
    """A file that is not there yet, in a directory of the user's."""
    directory = os.path.join(agent.directory, "user")
    os.mkdir(directory)
    os.chown(directory, USER, USER)
    return os.path.join(directory, "end")


def again_and_again(name, end):
    """A workload takes some 50 ms, and a checkpoint longer: it is run until the file `end` is there, so that every moment of
    its life is hit, and the births and deaths of its processes."""
    # What it says on standard error depends on whether devices reach each other, which through proxies they do not.
    return ["/bin/sh", "-c", f"while [ ! -e {end} ]; do {built('workloads', name)} 2>>{end}.errors || exit 1; done"]


def errors(end):
    with open(f"{end}.errors", encoding="utf-8", errors="replace") as file:
        return file.read()


@pytest.mark.parametrize("name", WORKLOADS)
def test_output_is_the_same(agent, end, name):
    chance = random.Random(f"{SEED} {name}")
    wanted, seconds = saved_nodes.undisturbed(["/bin/sh", "-c", f"{built('workloads', name)} 2>/dev/null"], WORKLOADS[name])
    node = agent.run(again_and_again(name, end), WORKLOADS[name])
    print(f"seed {SEED}: {seconds * 1000:.0f} ms undisturbed")
    deadline = time.monotonic() + PATIENCE
    saves = 0
    while saves < SAVES:
        assert time.monotonic() < deadline, f"seed {SEED}: saved {saves} times only"
        time.sleep(chance.uniform(0, 3 * seconds))
        began = time.monotonic()
        done = agent.ctl("checkpoint", node, user=USER)
        if done.returncode != 0 and REFUSED.get(name, "\0") in done.stderr:
            print(done.stderr.splitlines()[-1])
            continue  # and runs on
        assert done.returncode == 0, f"seed {SEED}: {done.stderr}\n{agent.log()}"
        saves += 1
        assert node not in agent.nodes() and not agent.leftovers()
        saved = time.monotonic()
        assert agent.ok("restore", node) == node
        print(f"saved in {saved - began:.2f} s, restored in {time.monotonic() - saved:.2f} s")
    with open(end, "x", encoding="utf-8"):
        pass
    found, ended = agent.ended(node)
    assert ended == "1: exit 0", f"seed {SEED}: {ended}\n{found.decode()}\n{errors(end)}\n{agent.proxy_logs(node)}\n{agent.log()}"
    times = max(1, len(found) // len(wanted))
    assert found == wanted * times, f"seed {SEED}: {saved_nodes.difference(found, wanted * times)}\n{errors(end)}"
    print(f"{times} times")
    agent.ok("destroy", node)
