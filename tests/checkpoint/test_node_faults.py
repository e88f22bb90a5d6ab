# SPDX-License-Identifier: GPL-2.0-or-later
"""At each numbered step of a checkpoint or a restore somebody is killed, or from there on the disk is full or cannot be
read. Afterwards the program runs on, or the newest checkpoint restores, without a bit of difference; the store is whole and
nothing is left behind. Steps are what the worker and its criu do to files, processes and sockets (steps.py).

Of each operation and disturbance one step is tried, drawn by chance; SINGULARITY_TEST_POINTS=N: as many of them;
SINGULARITY_TEST_ALL_POINTS=1: all, which takes hours; SINGULARITY_TEST_SEED: the same sample again."""

import collections
import contextlib
import errno
import functools
import os
import random
import signal
import subprocess
import time

import pytest
import saved_nodes
import steps
import virtualnode
from saved_nodes import PATIENCE, SEED, USER, built

ALL = os.environ.get("SINGULARITY_TEST_ALL_POINTS") == "1"
POINTS = int(os.environ.get("SINGULARITY_TEST_POINTS") or 1)

# They count until they are told to end. A child that was killed is no error of the program's: it starts it once more.
SHELL = """
exec 2>/dev/null
trap stop=1 USR1
n=0
while [ -z "$stop" ]; do n=$((n+1)); echo "$n $((n * n))"; sleep 0.05; done
echo end"""
CUDA = f"""
exec 2>/dev/null
trap stop=1 USR1
n=0
while [ -z "$stop" ]; do
    out=$({built('workloads', 'train_digits')}); code=$?
    case $code in
    0) ;;
    137 | 138) continue ;; # by SIGKILL, or by the signal that ends all this
    *) echo "failed: $code"; exit 1 ;;
    esac
    n=$((n+1)); last=$out; echo "$n $(echo "$out" | cksum)"
done
echo "$last"
echo end"""

Program = collections.namedtuple("Program", "script devices")
PROGRAMS = {"cuda": Program(CUDA, 1), "shell": Program(SHELL, 0)}
OPERATIONS = {"checkpoint": ["checkpoint"], "continue": ["checkpoint", "--continue"], "restore": ["restore"]}
VICTIMS = ["client", "proxy", "agent", "worker", "criu"]
FAULTS = {"full": (errno.ENOSPC, "change"), "unreadable": (errno.EIO, "read")}
NEEDS_NO_SPACE = {"unlink", "unlinkat", "rmdir", "chmod"}


def processes():
    """pid -> (parent, name) of everything that can be seen."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                head, _, rest = stat.read().rpartition(")")
                found[int(name)] = (int(rest.split()[1]), head.partition("(")[2])
    return found


def pid_namespace(pid):
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return None


class Scene:
    """One program in one node of one agent, to which things happen."""

    def __init__(self, name, chance):
        self.chance = chance
        self.program = PROGRAMS[name]
        self.agent = steps.Agent()
        try:
            command = ["/bin/sh", "-c", self.program.script]
            self.wanted, _ = saved_nodes.undisturbed([built("workloads", "train_digits")], 1) if self.program.devices else (b"", 0)
            self.node = self.agent.run(command, self.program.devices)
            self.await_progress()
            self.agent.ok("checkpoint", "--continue", self.node)
        except BaseException:
            self.agent.close()
            raise

    # -- what runs

    def is_there(self):
        return self.node in self.agent.nodes()

    def runs(self):
        return "running" in self.agent.nodes().get(self.node, ("", ""))[1]

    def lines(self):
        """Its output so far, which has neither gaps nor anything twice."""
        lines = self.agent.output(self.node).decode().splitlines()
        assert [line.split()[0] for line in lines] == [str(number + 1) for number in range(len(lines))], lines
        return lines

    def await_progress(self):
        before = len(self.lines())
        # More than what it had said already.
        virtualnode.wait_for(lambda: len(self.lines()) > before + 1 or not self.runs(), f"{self.node} to go on", PATIENCE)
        assert self.runs(), f"it has ended: {self.agent.nodes()}\n{self.agent.output(self.node)}"

    def of_node(self):
        """pid -> name of its processes, also of those that are being restored."""
        all_of_them = processes()
        own = pid_namespace("self")
        roots = set(self.agent.init_pids()) | set(self.agent.workers())

        def belongs(pid):
            while pid not in roots and pid in all_of_them:
                pid = all_of_them[pid][0]
            return pid in roots

        return {pid: name for pid, (_, name) in all_of_them.items() if pid_namespace(pid) not in (None, own) and belongs(pid)}

    def victims(self, who):
        if who == "worker":
            return self.agent.workers()
        if who == "proxy":
            return self.agent.proxies(self.node)
        if who == "criu":
            workers, own = self.agent.workers(), pid_namespace("self")
            return [pid for pid, (parent, name) in processes().items()
                    if name == "criu" and parent in workers and pid_namespace(pid) == own]
        clients = [pid for pid in self.of_node() if pid not in self.agent.init_pids()]
        return self.chance.sample(clients, min(1, len(clients)))

    def kill(self, who):
        """How many."""
        if who == "agent":
            self.agent.kill()
            self.agent.start()
            return 1
        pids = self.victims(who)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    # -- what is done to it

    def prepare(self, operation):
        if operation == "restore" and self.is_there():
            self.agent.ok("checkpoint", self.node)
        if operation != "restore" and not self.is_there():
            self.agent.ok("restore", self.node)
            self.await_progress()

    def attempt(self, operation, plan):
        """The exit status and errors of an operation that follows the plan, when all has settled."""
        self.agent.steps.arm(plan)
        words = self.agent.command(*OPERATIONS[operation], self.node)
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, cwd="/", user=USER,
                              group=USER, extra_groups=[], check=False)
        if plan.begun.is_set():
            virtualnode.wait_for(plan.ended.is_set, "the worker to end", PATIENCE)
        if plan.failure:
            raise plan.failure
        virtualnode.wait_for(self.settled, f"{self.node} to settle", PATIENCE)
        return done.returncode, done.stderr.strip()

    def settled(self):
        return self.agent.nodes().get(self.node, ("gone", ""))[0] in ("running", "gone") and not self.agent.workers()

    # -- what must hold afterwards

    def nothing_is_left(self):
        """Of what was under way; and of the node, if that is gone."""
        if not self.is_there():
            virtualnode.wait_for(lambda: not self.agent.leftovers(), f"nothing to be left: {self.agent.leftovers()}")
        staging = os.path.join(self.agent.staging, self.node)
        assert not os.path.isdir(staging) or not os.listdir(staging), os.listdir(staging)
        for pid in self.of_node():
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/status", encoding="utf-8") as status:
                    text = status.read()
                    assert "TracerPid:\t0" in text and "State:\tT" not in text, text
                    assert "CRIUMFD" not in maps.read(), f"criu's code is left in {pid}: {text}"
        for pid, (_, name) in processes().items():
            if pid != self.agent.process.pid and name != "pytest":
                with contextlib.suppress(OSError):
                    held = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
                    places = (self.agent.staging, self.agent.store)
                    assert not [one for one in held if one.startswith(places)], f"{pid} ({name}): {held}"

    def restore_newest(self, may_be_dead):
        """And the one before, where a program that had been killed already was saved."""
        self.agent.ok("restore", self.node)
        if may_be_dead and not self.runs():
            self.agent.ok("destroy", self.node)
            self.store("rm", self.agent.checkpoints()[0])
            self.agent.ok("restore", self.node)

    def check(self, who):
        """Says how it went on."""
        if who == "unreadable" and self.is_there():
            self.agent.ok("checkpoint", "--continue", self.node)  # what could not be seen could not be removed
        self.nothing_is_left()
        self.agent.store_is_whole()
        how = "runs on"
        if self.is_there():
            if who == "proxy" and not self.agent.proxies(self.node) or who == "client" and not self.runs():
                self.agent.ok("destroy", self.node)
                self.nothing_is_left()
        if not self.is_there():
            self.restore_newest(who == "client")
            how = "restored"
        assert len(self.agent.proxies(self.node)) == self.program.devices, "it has lost a device"
        self.await_progress()
        for checkpoint in self.agent.checkpoints()[2:]:
            self.store("rm", checkpoint)
        return how

    def store(self, *words):
        done = subprocess.run([virtualnode.program("singularityctl"), "store", "--store", self.agent.store, *words], capture_output=True,
                              text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stderr

    def finish(self, store=True):
        if not self.is_there():
            self.agent.ok("restore", self.node)
        before = len(self.lines())
        with self.agent.connect() as connection:
            connection.signal(self.node, 1, signal.SIGUSR1)
        output = self.agent.finish(self.node).decode()
        assert output.endswith(self.wanted.decode() + "end\n"), output
        lines = output[:len(output) - len(self.wanted.decode()) - 4].splitlines()
        assert len(lines) >= before
        for number, line in enumerate(lines, 1):
            first, _, rest = line.partition(" ")
            assert first == str(number) and rest == (lines[0].partition(" ")[2] if self.wanted else str(number * number)), lines
        self.agent.ok("destroy", self.node)
        self.nothing_is_left()
        if store:
            self.empty_store()

    def empty_store(self):
        """What the dead have left in the store goes with its leases, whose time is 15 minutes."""
        for checkpoint in self.agent.checkpoints():
            self.store("rm", checkpoint)
        for directory, _, names in os.walk(self.agent.store):
            for name in names:
                os.utime(os.path.join(directory, name), (time.time() - 7200,) * 2)
        self.store("gc", "--settle", "0", "--grace", "0")
        left = [os.path.join(directory, name) for directory, _, names in os.walk(self.agent.store) for name in names]
        assert {os.path.basename(path) for path in left} <= {"store", "named"}, left

    def close(self):
        self.agent.close()


def counts_for(what):
    """Which calls are steps at which it can happen."""
    if what in VICTIMS:
        return lambda call: call.kind != "read"
    kind = FAULTS[what][1]
    return lambda call: call.kind == kind and call.name not in NEEDS_NO_SPACE


@functools.lru_cache(None)
def all_calls(name):
    """Of an undisturbed run of each operation, and whether they are on files of the staging directory or the store."""
    scene = Scene(name, random.Random(SEED))
    try:
        calls = {}
        for operation in OPERATIONS:
            scene.prepare(operation)
            plan = steps.Plan(lambda call: True)
            status, errors = scene.attempt(operation, plan)
            assert status == 0, errors
            scene.check(None)
            calls[operation] = [(call, bool(scene.agent.steps.place(call))) for call in plan.steps]
        scene.finish()
        return calls
    finally:
        scene.close()


def points_of(name, what, operation, chance):
    """How many steps there are, and the numbers of those to try."""
    counts = counts_for(what)
    calls = [call for call, placed in all_calls(name)[operation] if counts(call) and (placed or what in VICTIMS)]
    numbers = range(len(calls))
    criu = [number for number in numbers if calls[number].program == "criu"]
    if what == "criu":
        numbers = range(criu[0], criu[-1] + 1)
    if what == "client" and operation == "restore":
        numbers = range(criu[0], len(calls))  # before, there is none
    return len(calls), numbers if ALL else sorted(chance.sample(numbers, min(POINTS, len(numbers))))


@pytest.mark.parametrize("what", [*VICTIMS, *FAULTS])
@pytest.mark.parametrize("name", PROGRAMS)
def test_steps(_mounts, name, what):
    if what == "proxy" and not PROGRAMS[name].devices:
        pytest.skip("it has no proxy")
    chance = random.Random(f"{SEED} {name} {what}")
    points = {operation: points_of(name, what, operation, chance) for operation in OPERATIONS}
    scene = Scene(name, chance)
    counts, place = counts_for(what), scene.agent.steps.place
    within = counts if what in VICTIMS else lambda call: counts(call) and place(call)
    tally = collections.Counter()
    at = "the beginning"
    try:
        for operation, (count, numbers) in points.items():
            for number in numbers:
                scene.prepare(operation)
                killed = []
                plan = (steps.Plan(within, number, code=FAULTS[what][0]) if what in FAULTS else
                        steps.Plan(within, number, act=lambda call, killed=killed: killed.append(scene.kill(what))))
                at = f"{name}, {what}, {operation}: step {number} of {count}"
                began = time.monotonic()
                status, errors = scene.attempt(operation, plan)
                at += f" ({steps.text_of(plan.reached) if plan.reached else 'not reached'})"
                tally["tried"] += 1
                tally["not reached" if not plan.reached else "nobody there" if killed == [0] else "hit"] += 1
                how = scene.check(what)
                tally["survived"] += 1
                tally[how] += 1
                print(f"{at}: {status} {errors.splitlines()[-1:]}: {how}; {time.monotonic() - began:.1f} s", flush=True)
        at = "the end"
        scene.finish()
    except BaseException as violation:
        print(f"seed {SEED}: violated at {at}: {violation}\n{scene.agent.log()}")
        raise
    finally:
        print(f"seed {SEED}: {name}, {what}: {tally['tried']} points tried, {tally['survived']} survived ({dict(tally)})")
        scene.close()


@contextlib.contextmanager
def small_disk(agent, directory):
    """Over a directory of the agent's; a file of any size on it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=700", "none", directory], check=True)
    before, agent.mounts = agent.mounts, agent.own_mounts()
    try:
        yield os.path.join(directory, "ballast")
    finally:
        subprocess.run(["umount", "-l", directory], check=True)
        agent.mounts = before


@pytest.mark.parametrize("place", ["staging", "store"])
def test_full_disk(_mounts, place):
    """A disk that is really full, of which ever more is free until it is enough; proxies write there as well."""
    scene = Scene("cuda", random.Random(SEED))
    refused = collections.Counter()
    try:
        directory = getattr(scene.agent, place)
        if place == "staging":
            os.rmdir(os.path.join(directory, scene.node))  # empty; it would come to light again
        with small_disk(scene.agent, directory) as ballast:
            if place == "store":
                scene.agent.ok("checkpoint", "--continue", scene.node)
            # In a store a restore needs the room of one empty file.
            for operation in list(OPERATIONS)[:3 if place == "staging" else 2]:
                left, status = 1, None
                while status != 0:
                    scene.prepare(operation)
                    free = os.statvfs(directory).f_bavail * os.statvfs(directory).f_bsize
                    with open(ballast, "wb") as file:
                        os.posix_fallocate(file.fileno(), 0, max(free - left, 1))
                    status, errors = scene.attempt(operation, steps.Plan(lambda call: False))
                    os.unlink(ballast)
                    print(f"{place}, {operation}: {left} bytes: {status} {errors.splitlines()[-1:]}", flush=True)
                    refused[operation] += status != 0
                    scene.check(None)
                    assert left <= 64 << 20
                    left = max(16 << 10, 16 * left)
                assert refused[operation] > 0
            print(f"{place}: refused and survived: {dict(refused)}")
            scene.finish(store=place == "staging")
    except BaseException as violation:
        print(f"seed {SEED}: {violation}\n{scene.agent.log()}")
        raise
    finally:
        scene.close()
