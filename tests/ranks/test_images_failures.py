# SPDX-License-Identifier: GPL-2.0-or-later
"""Somebody dies, or a host is lost, while a job is saved or restored, at a step of one of its phases (stepped_hosts.py) or at a
random moment: the job goes on, or ends everywhere with a word; then the previous checkpoint or the new one restores to the right
result. Nothing is left on any host.

SINGULARITY_TEST_SEED: the same steps and moments again. SINGULARITY_TEST_FAULTS=N: so many in each phase; without it one in one of
them, drawn by chance."""

import functools
import os
import random
import re
import subprocess
import time

import pytest
import relay
from rankhosts import CTL, PATIENCE, TOP
from stepped_hosts import Hosts, Plan, Point
from test_hosts_images import Run, ended, training
from virtualcluster.errors import wait_for

SEED = int(os.environ.get("SINGULARITY_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
FAULTS = int(os.environ.get("SINGULARITY_TEST_FAULTS") or 0)
RANKS = 4
ROUNDS = 150
# Messages from rank to rank, and a training on devices with a proxy each.
PROGRAMS = {"relay": (["python3", os.path.join(TOP, "tests", "ranks", "relay.py"), str(ROUNDS), "0.02"], 0),
            "training": (training("train_pipeline"), 2)}
AT_RANDOM = "any"
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


@pytest.fixture(scope="module", name="shared_hosts")
def stepped_hosts():
    hosts = Hosts(3)
    yield hosts
    hosts.close()


class Fault:
    """What happens to a host, and what has to be done afterwards for others to be able to use it."""

    def __init__(self, hosts, what, chance):
        self.hosts, self.what, self.chance = hosts, what, chance
        self.injected = False

    def inject(self):
        program, _, where = self.what.partition(" of ")
        name = {"the coordinator": "n1", "another": "n2"}[where]
        self.injected = True
        if program == "agent":
            self.hosts.kill_agent(name)
            self.hosts.start_agent(name)
        elif program == "host":
            self.hosts.cluster.kill(name)
        elif program == "way":
            self.hosts.cluster.partition(name)
        else:
            self.injected = kill_one(self.hosts, self.chance, name, program) is not None

    def inject_while(self, process):
        """As soon as there is somebody to kill."""
        while not self.injected and process.poll() is None:
            self.inject()

    def repair(self):
        program, _, _ = self.what.partition(" of ")
        if not self.injected:
            return
        if program == "host":
            self.hosts.cluster.boot("n2")
            self.hosts.start_agent("n2")
        elif program == "way":
            self.hosts.cluster.heal("n2")
        if program in ("host", "way"):
            self.hosts.wait_reachable("n2")


FAULTY = ["agent of the coordinator", "agent of another", "worker of the coordinator", "worker of another", "rank of another", "proxy of another",
          "network of another", "host of another", "way of another"]
OPERATIONS = {"checkpoint": ["checkpoint"], "continue": ["checkpoint", "--continue"], "restore": ["restore", "--hosts", "n2,n1", "--detach"]}


def begun(hosts, *arguments, name="n1"):
    line = hosts.host(name).command([CTL, *arguments], "alice")
    return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


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


@functools.lru_cache(None)
def wanted_of(hosts, program):
    """Its output."""
    if program == "relay":
        return relay.lines_of(RANKS, ROUNDS)
    run = Run(hosts, PROGRAMS[program][0], RANKS, PROGRAMS[program][1])
    output = run.output()
    hosts.ctl("n1", "destroy", run.job)
    return output


def saved_once(hosts, program, operation):
    """A job that has got somewhere and has a checkpoint, and what the operation is to be done with."""
    command, devices = PROGRAMS[program]
    run = Run(hosts, command, RANKS, devices)
    wait_for(lambda: hosts.logs("n1", run.job).count("\n") > 20, PATIENCE, f"the first rounds: {hosts.log('n1')}")
    if operation == "restore":
        saved = run.save()
        assert saved
        return run, saved
    assert run.save("--continue")
    return run, run.job


@functools.lru_cache(None)
def steps_of(hosts, program, operation):
    """{phase: how many} of an operation that nobody disturbs."""
    run, target = saved_once(hosts, program, operation)
    plan = Plan()
    hosts.follow(plan)
    process = begun(hosts, *OPERATIONS[operation], target)
    _, errors = end(process)
    assert process.returncode == 0, errors
    hosts.ctl("n1", "destroy", run.job)
    print(f"{program}, {operation}: steps {dict(plan.taken)}")
    return dict(plan.taken)


def phases_of(hosts, program, operation):
    return [AT_RANDOM, *steps_of(hosts, program, operation)]


def disturbed(hosts, fault, phase, chance, program, operation, target):
    """(exit status, output, errors) of the operation, and where it was hit."""
    count = 0 if phase == AT_RANDOM else steps_of(hosts, program, operation)[phase]
    plan = Plan(Point(phase, chance.randrange(count)) if count else None, fault.inject)
    if phase != AT_RANDOM:
        hosts.follow(plan)
    process = begun(hosts, *OPERATIONS[operation], target)
    if phase == AT_RANDOM:
        time.sleep(chance.uniform(0, 0.5))
        fault.inject_while(process)
    output, errors = end(process)
    with plan.lock:  # what was done has come to its end
        pass
    at = f"{phase} {plan.point.number} of {count}: {'not reached' if not plan.reached else ' '.join(plan.reached[1:5])}" if plan.point else phase
    return process.returncode, output, errors, at


def survives(hosts, what, operation, program, phase, chance):
    """Whether it was injected."""
    wanted = wanted_of(hosts, program)
    run, target = saved_once(hosts, program, operation)
    fault = Fault(hosts, what, chance)
    try:
        status, output, errors, at = disturbed(hosts, fault, phase, chance, program, operation, target)
        good, line = settled(hosts, run)
    finally:
        hosts.follow(None)
        fault.repair()
    print(f"{what}, {operation} of a {program}, {at}: {'said ' + output.strip() if status == 0 else errors.strip().splitlines()[-1:]}; {line}", flush=True)
    if good and not (operation == "checkpoint" and status == 0):
        assert run.output() == wanted
    else:
        wait_for(lambda: not any(hosts.left(name, [run.job]) for name in hosts.names), PATIENCE,
                 f"nothing to be left: {[hosts.left(name, [run.job]) for name in hosts.names]}")
        # The newest is whole.
        run.restore(run.job, chance.choice(("n1,n3", "n3", "n2,n1")), 2, "n1")
        assert run.output() == wanted
    hosts.ctl("n1", "destroy", run.job)
    hosts.assert_clean()
    return fault.injected


@pytest.mark.parametrize("what", FAULTY)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_faults(hosts, what, operation):
    chance = random.Random(f"{SEED} {what} {operation}")
    program = "training" if what == "proxy of another" else chance.choice(list(PROGRAMS))
    phases = phases_of(hosts, program, operation)
    at = [phase for phase in phases for _ in range(FAULTS)] or [chance.choice(phases)]
    injected = [survives(hosts, what, operation, program, phase, chance) for phase in at]
    print(f"seed {SEED}: {what}, {operation}: {sum(injected)} faults injected, {len(injected)} tries survived")


def test_restored_where_the_old_part_still_is(hosts):
    """An agent that comes again after its job has ended has a part of it yet; who coordinates knows better."""
    run, _ = saved_once(hosts, "relay", "continue")
    hosts.kill_agent("n2")
    hosts.ctl("n1", "destroy", run.job)
    wait_for(lambda: hosts.state("n1", run.job) == "gone", PATIENCE, f"{run.job} to be gone: {hosts.log('n1')}")
    hosts.start_agent("n2")
    assert f"{run.job}-1" in "".join(hosts.left("n2"))
    run.restore(run.job, "n1,n2", 0, "n1")
    assert run.output() == wanted_of(hosts, "relay")


STOP_WORKER = """until pid=$(grep -l '^singularity-wor' /proc/[0-9]*/comm | cut -d/ -f3) && kill -STOP $pid; do :; done; echo $pid"""


def test_no_rank_goes_on_before_all_can(hosts):
    """One node is restored, the other cannot be: neither does anything, so that nothing is done twice when the job goes on later."""
    file = os.path.join(hosts.cluster.directory, "shared", f"counted-{time.monotonic_ns()}")
    shared = f"/shared/{os.path.basename(file)}"
    with open(file, "w", encoding="ascii"):
        os.chmod(file, 0o666)
    count = f"n=0; while [ ! -e {shared}-end ]; do n=$((n + 1)); echo $RANK $n >>{shared}; sleep 0.02; done 2>/dev/null"
    job = hosts.detach("n1", "n1,n2", "sh", "-c", count)

    def counted():
        with open(file, encoding="ascii") as lines:
            return sorted(tuple(map(int, line.split())) for line in lines)

    wait_for(lambda: len(counted()) > 50, PATIENCE, "both ranks to count")
    hosts.ctl("n1", "checkpoint", job)
    saved = counted()
    line = hosts.host("n2").command(["timeout", str(PATIENCE), "sh", "-c", STOP_WORKER])
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as stopper:
        process = begun(hosts, "restore", "--hosts", "n1,n2", "--detach", job)
        pid = stopper.communicate(timeout=2 * PATIENCE)[0].strip()
    find = ["sh", "-c", "grep -l '^singularity-ini' /proc/[0-9]*/comm"]
    wait_for(lambda: hosts.host("n1").run(find, check=False).stdout, PATIENCE, f"the node on n1 to be restored: {hosts.log('n1')}")
    time.sleep(1)  # it would have counted on by now
    hosts.host("n2").run(["kill", "-KILL", pid])
    _, errors = end(process)
    assert process.returncode == 1 and "cannot restore nodes on 'n2'" in errors, errors
    hosts.assert_clean(detached=[job])
    assert counted() == saved
    hosts.ctl("n1", "restore", "--hosts", "n1,n3", "--detach", job)
    wait_for(lambda: len(counted()) > len(saved) + 50, PATIENCE, "both ranks to count on")
    with open(f"{file}-end", "w", encoding="ascii"):
        pass
    ended(hosts, "n1", job)
    for rank in range(2):
        numbers = [number for one, number in counted() if one == rank]
        assert numbers == list(range(1, len(numbers) + 1))
    hosts.ctl("n1", "destroy", job)


def test_a_coordinator_dies_while_it_saves_by_itself(hosts):
    """Of checkpoints that nobody has asked for the newest stays, also where the one before it was committed by an agent that has died."""
    chance = random.Random(f"{SEED} periodic")
    job = hosts.detach("n1", "n1,n2", "sleep", "1000", options=["--every", "1s"])

    def saved():
        return [line.split()[0] for line in hosts.ctl("n1", "store", "ls", user="root", check=False).stdout.splitlines() if job in line]

    def only_one_and_not(others):
        found = saved()
        return len(found) == 1 and found[0] not in others and found[0]

    first = wait_for(lambda: only_one_and_not([]), PATIENCE, f"the first checkpoint: {hosts.log('n1')}")
    fault = Fault(hosts, "agent of the coordinator", chance)
    plan = Plan(Point("commit", chance.randrange(10)), fault.inject)  # there are 12 or more
    hosts.follow(plan)
    wait_for(lambda: fault.injected, PATIENCE, f"the end of a save: {hosts.log('n1')}")
    with plan.lock:
        pass
    print(f"seed {SEED}: killed at {plan.reached}")
    second = wait_for(lambda: only_one_and_not([first]), PATIENCE, f"a second checkpoint instead of {first}: {saved()}")
    wait_for(lambda: only_one_and_not([first, second]), PATIENCE, f"a third instead of {second}: {saved()}")
    assert hosts.state("n1", job) == "running"
    hosts.ctl("n1", "destroy", job)


def test_a_job_with_a_failed_rank_is_not_saved(hosts):
    """In the moment before its processes are saved: a checkpoint of that would be the newest one and of no use."""
    run, target = saved_once(hosts, "relay", "continue")
    fault = Fault(hosts, "rank of another", random.Random(SEED))
    hosts.follow(Plan(Point("before processes", 0), fault.inject))
    process = begun(hosts, "checkpoint", target)
    _, errors = end(process)
    # Who notices it first says it: the worker of its node, or the coordinator.
    assert fault.injected and process.returncode == 1 and re.search("has (just )?ended", errors), errors
    # Of this rank, or of its neighbour, which misses it.
    assert "has ended with" in settled(hosts, run)[1]
    hosts.assert_clean(detached=[run.job])
    run.restore(run.job, "n1,n3", 0, "n1")
    assert run.output() == wanted_of(hosts, "relay")
