# SPDX-License-Identifier: GPL-2.0-or-later
"""Trainings of several ranks with NCCL in one virtual node, saved at random moments and restored on other numbers of devices,
or saved while they run on: the losses of an undisturbed run, to the bit."""

import os
import random
import sys
import time

import pytest
from saved_nodes import SEED, TOP, built

sys.path.append(os.path.join(TOP, "tests", "ranks", "collectives"))
import ranked  # noqa: E402
import test_training  # noqa: E402

SIZES = (2, 1, 4, 8, 2)
STEPS = "30"


def program(name, ranks):
    return ["/usr/bin/python3", os.path.join(ranked.HERE, "launch.py"), str(ranks), built("workloads", name), STEPS]


def moved(agent, name, ranks, chance, longest):
    """A training that was saved at random moments, and how often."""
    node = agent.run(program(name, ranks), ranks)
    saved = []
    for size in SIZES:
        time.sleep(chance.uniform(0, longest))
        if "running" not in agent.task(node):
            break
        if size > ranks:
            saved.append("goes on")
            agent.ok("checkpoint", "--continue", node)
            continue
        agent.ok("checkpoint", node)
        agent.ok("restore", "--devices", str(size), node)
        assert len(agent.proxies(node)) == size
        saved.append(f"on {size}")
    print(f"seed {SEED}: {name}: saved {len(saved)} times, {saved}")
    return node, saved


@pytest.mark.parametrize("name, ranks", test_training.trainings())
def test_losses_are_the_same(agent, name, ranks):
    chance = random.Random(f"{SEED} {name} ranks")
    began = time.monotonic()
    wanted = ranked.finished(ranked.command(ranks, 1, built("workloads", name), STEPS))
    span = time.monotonic() - began
    # How fast it is the next time, depends on what else the machine does.
    for number in range(5):
        node, saved = moved(agent, name, ranks, chance, span / 3 / 2**number)
        assert agent.finish(node).decode() == wanted, f"seed {SEED}"
        agent.ok("destroy", node)
        if saved:
            return
    assert False, f"seed {SEED}: it ends too early"
