# SPDX-License-Identifier: GPL-2.0-or-later
"""Virtual nodes of a job that come to lie on one host with one GPU: each of their ranks has the memory of all of it, though each node
has a device proxy of its own."""

import os
import random
import sys
import time

import pytest
from rankhosts import PATIENCE, TOP
from test_hosts_images import SEED, Run, ended, started
from virtualcluster.errors import wait_for

sys.path.append(os.path.join(TOP, "tests", "ranks", "collectives"))
import ranked  # noqa: E402

MEMORY = "64M"
HOSTS = {"patience": 60, "variables": {"SINGULARITY_SOFTGPU_MEMORY": MEMORY}}
CROWDED = "the sessions' memory does not fit on the device any more: they take turns"


def program(mode, percent, steps, times):
    return [ranked.built("filling_ranks"), mode, str(percent), str(steps), str(times)]


def crowded(hosts, name, run):
    """Of how many proxies of the job on a host the sessions take turns."""
    script = f"cat /run/singularity/nodes/{run.job}-*/proxy.*.log"
    return hosts.host(name).run(["sh", "-c", script], check=False).stdout.count(CROWDED)


# A virtual node's two ranks fit on a device, those of two nodes do not; not even two ranks fit.
@pytest.mark.parametrize("mode, percent, steps, times", [("reduce", 40, 600, 20), ("pool", 60, 400, 20)])
def test_nodes_that_share_a_device(hosts, mode, percent, steps, times):
    """From a device for each rank to one for all, saved while they take turns, on to one of another host, and to more devices again."""
    wanted = Run(hosts, program(mode, percent, steps, times), 4).output()
    chance = random.Random(f"{SEED} {mode}")
    run = Run(hosts, program(mode, percent, steps, times), 4)
    started(run)
    time.sleep(chance.uniform(0.5, 1))  # at any moment
    moved = []
    for where, devices in (("n3", 1), ("n2", 1), ("n1,n3", 2)):
        checkpoint = run.save()
        if checkpoint is None:
            break
        assert "it was saved in" in ended(hosts, run.coordinator, run.job)
        run.restore(checkpoint, where, devices, where.partition(",")[0])
        moved.append(where)
        if devices == 1:
            wait_for(lambda at=where: crowded(hosts, at, run) == 2, PATIENCE, f"both proxies on {where} to take turns: {hosts.log(where)}")
            time.sleep(chance.uniform(0, 1))
    print(f"seed {SEED}: {mode}: moved to {moved}")
    assert len(moved) > 1, "it has ended before it was saved on the device that its nodes share"
    assert run.output() == wanted


@pytest.mark.parametrize("mode, percent, steps", [("differ", 80, 3), ("graph", 60, 3), ("captured", 80, 3), ("alone", 80, 6), ("greedy", 90, 1)])
def test_nodes_that_begin_on_a_device(hosts, mode, percent, steps):
    """Each of their ranks has as much as there is, one after the other."""
    wanted = Run(hosts, program(mode, percent, steps, 1), 4).output()
    options = ["--ranks-per-node", "2", "--devices", "1", "--backend", "software"]
    done = hosts.run("n3", "n3,n3", *program(mode, percent, steps, 1), options=options)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(line for lines in wanted.values() for line in lines)
