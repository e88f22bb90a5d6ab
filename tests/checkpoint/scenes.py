# SPDX-License-Identifier: GPL-2.0-or-later
"""One program in one node of an agent whose workers are stepped: what is done to it, and what must hold afterwards."""

import collections
import contextlib
import itertools
import os
import signal
import subprocess
import time

import saved_nodes
import steps
import virtualnode
from saved_nodes import PATIENCE, USER, built

# They count until they are told to end. A child that was killed is no error of the program's: it starts it once more.
SHELL = """
exec 2>/dev/null
trap stop=1 USR1
n=0
while [ -z "$stop" ]; do n=$((n+1)); echo "$n $((n * n))"; sleep 0.05; done
echo end"""
EPOCHS = 1
CUDA = f"""
exec 2>/dev/null
trap stop=1 USR1
n=0
while [ -z "$stop" ]; do
    out=$({built('workloads', 'train_digits')} {EPOCHS}); code=$?
    case $code in
    0) ;;
    137 | 138) continue ;; # by SIGKILL, or by the signal that ends all this
    *) echo "failed: $code"; exit 1 ;;
    esac
    n=$((n+1)); first=${{first:-$out}}
    [ "$out" = "$first" ] || {{ echo "failed: $out"; exit 1; }}
    echo "$n same"
done
echo "$first"
echo end"""

Program = collections.namedtuple("Program", "script devices")
PROGRAMS = {"cuda": Program(CUDA, 1), "shell": Program(SHELL, 0)}
OPERATIONS = {"checkpoint": ["checkpoint"], "continue": ["checkpoint", "--continue"], "restore": ["restore"]}


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
            self.wanted, _ = saved_nodes.undisturbed([built("workloads", "train_digits"), str(EPOCHS)], 1) if self.program.devices else (b"", 0)
            self.node = self.agent.run(command, self.program.devices)
            self.await_progress()
            self.agent.ok("checkpoint", "--continue", self.node)
        except BaseException:
            self.agent.close()
            raise

    # -- what runs

    def state(self):
        """(state of the node, whether its program runs)"""
        with self.agent.connect() as connection:
            state, tasks = connection.nodes().get(self.node, ("gone", {}))
        return state, any(tasks.values())

    def is_there(self):
        return self.state()[0] != "gone"

    def runs(self):
        return self.state()[1]

    def output(self):
        with self.agent.connect() as connection:
            return connection.log(self.node)

    def lines(self):
        """Its output so far, which has neither gaps nor anything twice."""
        lines = self.output().decode().splitlines()
        assert [line.split()[0] for line in lines] == [str(number + 1) for number in range(len(lines))], lines
        return lines

    def await_progress(self):
        before = len(self.lines())
        turns = itertools.count(1)

        def goes_on():
            # More than what it had said already. Who asks all the time takes the processor from it.
            return self.output().count(b"\n") > before + 1 or next(turns) % 64 == 0 and not self.runs()

        virtualnode.wait_for(goes_on, f"{self.node} to go on", PATIENCE)
        assert self.runs(), f"it has ended: {self.state()}\n{self.agent.output(self.node)}"
        self.lines()

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
        return self.state()[0] in ("running", "gone") and not self.agent.workers()

    # -- what must hold afterwards

    def nothing_is_left(self):
        """Of what was under way; and of the node, if that is gone."""
        if not self.is_there():
            virtualnode.wait_for(lambda: not self.agent.leftovers(), f"nothing to be left: {self.agent.leftovers()}")
        staging = os.path.join(self.agent.staging, self.node)
        # A process of its own removes it.
        virtualnode.wait_for(lambda: not os.path.isdir(staging) or not os.listdir(staging), f"{staging} to be empty")
        for pid in self.of_node():
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/status", encoding="utf-8") as status:
                    text = status.read()
                    assert "TracerPid:\t0" in text and "State:\tT" not in text, text
                    assert "CRIUMFD" not in maps.read(), f"criu's code is left in {pid}: {text}"
        # criu does not wait for all that it has made, and who is killed needs a moment to end.
        virtualnode.wait_for(lambda: not self.holders(), f"nobody to have files open any more: {self.holders()}")

    def holders(self):
        """Who has files of the staging directory or the store open: pid -> its name and the files."""
        places = (self.agent.staging, self.agent.store)
        found = {}
        for pid, (_, name) in processes().items():
            if pid != self.agent.process.pid and name != "pytest":
                with contextlib.suppress(OSError):
                    held = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
                    if any(one.startswith(places) for one in held):
                        found[pid] = name, held
        return found

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
