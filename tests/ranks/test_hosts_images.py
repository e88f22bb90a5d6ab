# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs of several nodes that are saved at random moments and restored on other hosts, on fewer and more devices: the results of a
run that nobody disturbed.

SINGULARITY_TEST_SEED: the same moments again. SINGULARITY_TEST_CUTS: how many of each training, 2 or more, half of them moves."""

import hashlib
import os
import random
import sys
import time

import pytest
from rankhosts import CTL, PATIENCE, TOP
from test_hosts_training import by_rank
from test_jobs import LARGE, START_WITH_IT
from virtualcluster.errors import wait_for

COLLECTIVES = os.path.join(TOP, "tests", "ranks", "collectives")
sys.path.append(COLLECTIVES)
import ranked  # noqa: E402
import test_training  # noqa: E402

HOSTS = {"patience": 60}  # nobody dies here, and all processors are busy
SEED = int(os.environ.get("SINGULARITY_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
CUTS = int(os.environ.get("SINGULARITY_TEST_CUTS") or 10)
# Of each: some seconds, most of them while ranks are saved and restored.
STEPS = {"train_pipeline": "400", "train_overlapped": "100"}
MOST = "120"
# Where the two nodes run, and devices of each.
PLACES = (("n1,n2", 4), ("n3", 2), ("n2,n3", 1), ("n3,n1", 2), ("n1", 1), ("n1,n2", 3))


def ended(hosts, name, job):
    wait_for(lambda: hosts.state(name, job) in ("ended", "gone"), 2 * PATIENCE, f"{job} to end: {hosts.log(name)}")
    return hosts.jobs(name).get(job, "gone")


class Run:
    """A detached job, and where it is coordinated."""

    def __init__(self, hosts, program, ranks, devices=None):
        self.hosts = hosts
        self.coordinator = "n1"
        self.devices = min(4, ranks // 2) if devices is None else devices
        options = ["--ranks-per-node", str(ranks // 2), "--devices", str(self.devices), "--backend", "software"]
        self.job = hosts.detach("n1", "n1,n2", *program, options=options)

    def state(self):
        return self.hosts.state(self.coordinator, self.job)

    def save(self, *options):
        """Its id; None if the job has ended by itself before."""
        done = self.hosts.ctl(self.coordinator, "checkpoint", *options, self.job, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
        wait_for(lambda: self.state() == "ended", PATIENCE, f"{self.job} to have ended: {done.stderr}{self.hosts.log(self.coordinator)}")
        line = self.hosts.jobs(self.coordinator)[self.job]
        assert "exit 0" in line, f"{line}: {done.stderr}{self.hosts.log(self.coordinator)}"
        return None

    def restore(self, checkpoint, where, devices, coordinator):
        self.coordinator = coordinator
        options = ["--hosts", where, "--devices", str(min(devices, self.devices)), "--detach"]
        self.hosts.ctl(coordinator, "restore", *options, checkpoint)

    def output(self):
        """Of each rank, once it has ended."""
        line = ended(self.hosts, self.coordinator, self.job)
        output = by_rank(self.hosts.logs(self.coordinator, self.job, "--label"), ": ")
        assert "exit 0" in line, f"{line}\n{output}\n{self.hosts.log(self.coordinator)}"
        return output


def training(name):
    return ["env", f"WORKLOADS_DATA={os.path.join(TOP, 'tests', 'workloads', 'data')}", ranked.proxied.program("workloads", name),
            STEPS.get(name, MOST)]


def undisturbed(hosts, program, ranks):
    began = time.monotonic()
    output = Run(hosts, program, ranks).output()
    return output, time.monotonic() - began


def started(run):
    wait_for(lambda: run.state() == "running", PATIENCE, f"{run.job} to run")


def moved(hosts, run, chance, longest, most):
    """The places it was moved to at random moments, until it ended: the first ones of PLACES after its own."""
    places = []
    while len(places) < most:
        time.sleep(chance.uniform(0, longest))
        checkpoint = run.save()
        if checkpoint is None:
            break
        assert "it was saved in" in ended(hosts, run.coordinator, run.job)
        where, devices = PLACES[(len(places) + 1) % len(PLACES)]
        run.restore(checkpoint, where, devices, chance.choice(hosts.names))
        places.append(where)
    return places


def saved(run, chance, longest, most):
    """Its checkpoints, made at random moments while it went on, until it ended."""
    checkpoints = []
    while len(checkpoints) < most:
        time.sleep(chance.uniform(0, longest))
        checkpoint = run.save("--continue")
        if checkpoint is None:
            break
        checkpoints.append(checkpoint)
    return checkpoints


def until_all(make):
    """As many runs as that takes; make: what one run of at most so many gives, which are counted."""
    left = CUTS // 2
    for _ in range(CUTS // 2):
        left -= make(left)
        if left == 0:
            return
    assert False, f"{left} of {CUTS // 2} are left: the training is too short"


def test_a_large_environment_is_saved_with_its_job(hosts):
    """The job's record has it, in the agents' messages, in the store, and where the job goes on."""
    script = ("import hashlib, os, time\n"
              "while not os.path.exists('/shared/large'): time.sleep(0.02)\n"
              "print(hashlib.sha256(repr(sorted(one for one in os.environ.items() if one[0].startswith('LARGE_'))).encode()).hexdigest())")
    job = hosts.host("n1").run(["python3", "-c", START_WITH_IT, CTL, "run", "--detach", "--hosts", "n1,n2", "--", "python3", "-c", script],
                               user="alice").stdout.strip()
    wait_for(lambda: hosts.state("n1", job) == "running", PATIENCE, f"{job} to run")
    checkpoint = hosts.ctl("n1", "checkpoint", job).stdout.strip()
    assert "it was saved in" in ended(hosts, "n1", job)
    hosts.ctl("n2", "restore", "--hosts", "n3,n2", "--detach", checkpoint)
    with open(os.path.join(hosts.cluster.directory, "shared", "large"), "w", encoding="ascii"):
        pass
    assert "exit 0" in ended(hosts, "n2", job)
    digest = hashlib.sha256(repr(sorted(LARGE.items())).encode()).hexdigest()
    assert sorted(hosts.logs("n2", job, "--label").splitlines()) == [f"{rank}: {digest}" for rank in range(2)]


@pytest.mark.parametrize("name, ranks", test_training.trainings())
def test_migrated(hosts, name, ranks):
    """To another place at each of some random moments."""
    wanted, span = undisturbed(hosts, training(name), ranks)
    chance = random.Random(f"{SEED} {name}")

    def one_run(most):
        run = Run(hosts, training(name), ranks)
        started(run)
        places = moved(hosts, run, chance, span / CUTS, most)
        print(f"seed {SEED}: {name}: moved to {places}")
        assert run.output() == wanted
        return len(places)

    until_all(one_run)


@pytest.mark.parametrize("name, ranks", test_training.trainings())
def test_goes_on(hosts, name, ranks):
    """Saved while it runs; then the last one, and one by chance, are restored elsewhere."""
    wanted, span = undisturbed(hosts, training(name), ranks)
    chance = random.Random(f"{SEED} {name} goes on")

    def one_run(most):
        run = Run(hosts, training(name), ranks)
        started(run)
        checkpoints = saved(run, chance, span / CUTS, most)
        print(f"seed {SEED}: {name}: saved {len(checkpoints)} times, {span:.1f} s undisturbed")
        assert run.output() == wanted
        for checkpoint in {checkpoints[-1], chance.choice(checkpoints)} if checkpoints else ():
            hosts.ctl(run.coordinator, "destroy", run.job, check=False)
            where, devices = chance.choice(PLACES)
            run.restore(checkpoint, where, devices, chance.choice(hosts.names))
            assert run.output() == wanted, f"{checkpoint} on {where}, {devices} devices"
        return len(checkpoints)

    until_all(one_run)


def test_pytorch_is_migrated_twice(hosts):
    """2 hosts, 2 gloo ranks each: connections between them go on wherever their ends are."""
    program = ["python3", os.path.join(TOP, "tests", "ranks", "train_gloo.py"), "400"]
    wanted = Run(hosts, program, 4, 0).output()
    assert all(len(lines) == 401 for lines in wanted.values())
    chance = random.Random(f"{SEED} gloo")
    run = Run(hosts, program, 4, 0)
    lines = 0
    for where, coordinator in (("n3,n1", "n3"), ("n2", "n1")):
        lines += chance.randrange(20, 150)
        wait_for(lambda least=lines: hosts.logs(run.coordinator, run.job).count("\n") > 4 * least, 2 * PATIENCE, f"{lines} steps: {run.state()}")
        checkpoint = run.save()
        assert checkpoint, "it has ended before it was saved"
        run.restore(checkpoint, where, 0, coordinator)
    assert run.output() == wanted


def test_refusals(hosts):
    """What is not possible is said, and nothing happens to the job."""
    run = Run(hosts, ["sleep", "1000"], 2, 0)
    started(run)

    def refused(*command, name="n1", user="alice"):
        done = hosts.ctl(name, *command, check=False, user=user)
        assert done.returncode == 1
        return done.stderr

    assert f"it is a node of the job {run.job}, which is saved as a whole" in refused("checkpoint", f"{run.job}-0")
    assert "belongs to another user" in refused("checkpoint", run.job, user="bob")
    checkpoint = run.save("--continue")
    assert "the store has none of that id or virtual node" in refused("restore", "u1001-j000000")
    assert "it is running" in refused("restore", "--detach", checkpoint)
    assert "there is one of that name" in refused("restore", "--detach", checkpoint, name="n2")
    assert run.state() == "running"
    run.save()
    ended(hosts, "n1", run.job)
    assert "the store has none of that id" in refused("restore", "--detach", checkpoint, user="bob")
    assert "it has 2 nodes: 3 hosts are more" in refused("restore", "--detach", "--hosts", "n1,n2,n3", checkpoint)
    assert "'n 1' is no name of a host" in refused("restore", "--detach", "--hosts", "n 1", checkpoint)
    assert "cannot find the host 'n9'" in refused("restore", "--detach", "--hosts", "n9", checkpoint)
    assert f"its node {run.job}-0 has 0 devices: 1 are more" in refused("restore", "--detach", "--devices", "1", checkpoint)
    run.restore(checkpoint, "n3", 0, "n1")
    assert run.state() == "running"
