# SPDX-License-Identifier: GPL-2.0-or-later
"""Somebody dies, or a host is lost, while a job is saved or restored, at random moments: the job goes on, or ends everywhere with a
word; then the previous checkpoint or the new one restores to the right result. Nothing is left on any host.

SINGULARITY_TEST_SEED: the same moments again. SINGULARITY_TEST_FAULTS: how many of each kind, 1 if not given."""

import os
import random
import subprocess
import time

import pytest
import relay
from rankhosts import CTL, PATIENCE, TOP
from test_failures import wait_reachable
from test_hosts_images import Run, ended
from virtualcluster.errors import wait_for

SEED = int(os.environ.get("SINGULARITY_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
FAULTS = int(os.environ.get("SINGULARITY_TEST_FAULTS") or 1)
RANKS = 4
ROUNDS = 150
RELAY = ["python3", os.path.join(TOP, "tests", "ranks", "relay.py"), str(ROUNDS), "0.02"]
PREFIXES = {"worker": "singularity-wor", "proxy": "singularity-pro", "rank": "python3", "network": "singularity-net", "criu": "criu"}


def kill_one(hosts, chance, name, program):
    """One process of that kind on a host, if there is one at this moment. Its id."""
    script = f"grep -l '^{PREFIXES[program]}' /proc/[0-9]*/comm | cut -d/ -f3"
    pids = hosts.host(name).run(["sh", "-c", script], check=False).stdout.split()
    if not pids:
        return None
    pid = chance.choice(pids)
    hosts.host(name).run(["kill", "-KILL", pid], check=False)
    return pid


class Fault:
    """What happens to a host, and what has to be done afterwards for others to be able to use it."""

    def __init__(self, hosts, what, chance):
        self.hosts, self.what, self.chance = hosts, what, chance
        self.injected = False

    def inject(self, process):
        """While that process is at it."""
        program, _, where = self.what.partition(" of ")
        name = {"the coordinator": "n1", "another": "n2"}[where]
        if program == "agent":
            self.hosts.kill_agent(name)
            self.hosts.start_agent(name)
            self.injected = True
        elif program == "host":
            self.hosts.cluster.kill(name)
            self.injected = True
        elif program == "way":
            self.hosts.cluster.partition(name)
            self.injected = True
        else:
            while process.poll() is None and not self.injected:
                self.injected = kill_one(self.hosts, self.chance, name, program) is not None

    def repair(self):
        program, _, _ = self.what.partition(" of ")
        if program == "host":
            self.hosts.cluster.boot("n2")
            self.hosts.start_agent("n2")
        elif program == "way":
            self.hosts.cluster.heal("n2")
        if program in ("host", "way"):
            wait_reachable(self.hosts, "n2")


FAULTY = ["agent of the coordinator", "agent of another", "worker of the coordinator", "worker of another", "rank of another", "network of another",
          "host of another", "way of another"]


def begun(hosts, *arguments, name="n1"):
    line = hosts.host(name).command([CTL, *arguments], "alice")
    return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                            preexec_fn=hosts.host(name).join_cgroups)


def settled(hosts, run):
    """How it has ended; it does, by itself or because of what was done to it."""
    line = ended(hosts, run.coordinator, run.job)
    return "exit 0" in line, line


def end(process):
    """What it has said; it ends in time, whatever has happened."""
    try:
        return process.communicate(timeout=2 * PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise


def newest_restores(hosts, run, wanted, where):
    """From the store, which has one that is whole."""
    run.restore(run.job, where, 0, "n1")
    assert run.output() == wanted


@pytest.mark.parametrize("what", FAULTY)
@pytest.mark.parametrize("operation", ["checkpoint", "continue", "restore"])
def test_faults(hosts, what, operation):
    wanted = relay.lines_of(RANKS, ROUNDS)
    chance = random.Random(f"{SEED} {what} {operation}")
    injected = went_on = 0
    for _ in range(FAULTS):
        run = Run(hosts, RELAY, RANKS, 0)
        wait_for(lambda: hosts.logs("n1", run.job).count("\n") > 20, PATIENCE, f"the first rounds: {hosts.log('n1')}")
        first = run.save("--continue")
        assert first
        fault = Fault(hosts, what, chance)
        if operation == "restore":
            first = run.save()
            process = begun(hosts, "restore", "--hosts", "n2,n1", "--detach", first)
        else:
            process = begun(hosts, "checkpoint", *(["--continue"] if operation == "continue" else []), run.job)
        time.sleep(chance.uniform(0, 0.25))
        try:
            fault.inject(process)
            output, errors = end(process)
            good, line = settled(hosts, run)
        finally:
            fault.repair()
        injected += fault.injected
        print(f"{what}, {operation}: {'said ' + output.strip() if process.returncode == 0 else errors.strip().splitlines()[-1:]}; {line}")
        saved = operation == "checkpoint" and process.returncode == 0
        if good and not saved:
            went_on += 1
            assert run.output() == wanted
            hosts.ctl("n1", "destroy", run.job)
            hosts.assert_clean()
            continue
        wait_for(lambda: not any(hosts.left(name, [run.job]) for name in hosts.names), PATIENCE,
                 f"nothing to be left: {[hosts.left(name, [run.job]) for name in hosts.names]}")
        newest_restores(hosts, run, wanted, chance.choice(("n1,n3", "n3", "n2,n1")))
        hosts.ctl("n1", "destroy", run.job)
        hosts.assert_clean()
    print(f"seed {SEED}: {what}, {operation}: {injected} faults injected, {FAULTS} survived, {went_on} went on")
