# SPDX-License-Identifier: GPL-2.0-or-later
"""Virtual nodes of a real agent, saved and restored through the store; used by test_node_*.py."""

import contextlib
import itertools
import os
import random
import subprocess
import sys
import time

import nodes

TOP = os.path.abspath(os.path.join(nodes.HERE, "..", ".."))
sys.path[:0] = [os.path.join(TOP, "tests", part) for part in ("node", "workloads")]
import declared  # noqa: E402
import virtualnode  # noqa: E402

PATIENCE = 120  # against hangs: the machine may be busy
USER = virtualnode.ALICE
DATA = os.path.join(TOP, "tests", "workloads", "data")
SEED = int(os.environ.get("SINGULARITY_TEST_SEED", "0")) or random.randrange(1, 1 << 30)


def built(*parts):
    return os.path.join(virtualnode.BUILD, *parts)


def workloads():
    """name -> number of devices"""
    return declared.workloads(built("workloads"))


def undisturbed(command, devices):
    """Output and errors of a program on the software GPU itself, and how long it took."""
    environment = dict(os.environ, LD_LIBRARY_PATH=built("softgpu"), LD_AUDIT=built("libsingularity-redirect.so"),
                       SINGULARITY_SOFTGPU_DEVICES=str(devices), WORKLOADS_DATA=DATA)
    began = time.monotonic()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          timeout=PATIENCE, check=True)
    return done.stdout, time.monotonic() - began


def difference(found, wanted):
    """Of two outputs, where it begins."""
    for number, (one, other) in enumerate(itertools.zip_longest(found.splitlines(), wanted.splitlines())):
        if one != other:
            return f"line {number} is {one} and not {other}"
    return "how the last line ends"


def foreground(agent, *words):
    return subprocess.Popen(agent.command(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/",
                            bufsize=1, user=USER, group=USER, extra_groups=[])


def answers(program):
    """Of `singularity-probe steady`: what its device still holds."""
    program.stdin.write("\n")
    program.stdin.flush()
    line = program.stdout.readline()
    assert line.split() == ["value", "7"], f"{line} {program.stderr.read() if program.poll() is not None else ''}"


class Agent(virtualnode.Agent):
    """With what tests of checkpoints ask it for."""

    def ok(self, *arguments, user=USER, **options):
        done = self.ctl(*arguments, user=user, **options)
        assert done.returncode == 0, f"{arguments}: {done.stderr}\n{self.log()}"
        return done.stdout.strip()

    def run(self, command, devices=0, options=(), directory="/", **environment):
        """The name of a node in which it runs detached."""
        words = self.command("run", "--detach", "--devices", str(devices), "--backend", "software", *options, "--", *command)
        done = subprocess.run(words, capture_output=True, text=True, cwd=directory, timeout=PATIENCE, user=USER, group=USER, extra_groups=[],
                              env=dict(os.environ, WORKLOADS_DATA=DATA, **environment), check=False)
        assert done.returncode == 0, f"{done.stderr}\n{self.log()}"
        return done.stdout.strip()

    def nodes(self):
        """name -> (state, tasks) as ps shows them."""
        lines = self.ok("ps", user=0).splitlines()[1:]
        return {line.split()[0]: (line.split()[3], line.split(None, 6)[6] if len(line.split(None, 6)) > 6 else "") for line in lines}

    def task(self, node):
        return self.nodes()[node][1]

    def output(self, node):
        return self.ctl("logs", node, user=USER).stdout.encode()

    def ended(self, node):
        """Waits for the program's end: its output, and how it has ended."""
        try:
            virtualnode.wait_for(lambda: "running" not in self.task(node) and self.nodes()[node][0] == "running", f"the end of {node}", PATIENCE)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.processes()}\n{self.proxy_logs(node)}\n{self.log()}") from late
        virtualnode.wait_for(lambda: self.drained(node), "its output", PATIENCE)
        return self.output(node), self.task(node)

    def finish(self, node):
        """The output of a program that ends well."""
        found, ended = self.ended(node)
        assert ended == "1: exit 0", f"{ended}\n{found.decode()}\n{self.proxy_logs(node)}\n{self.log()}"
        return found

    def drained(self, node):
        before = self.output(node)
        time.sleep(0.05)
        return before == self.output(node)

    def processes(self):
        """What the threads of other PID namespaces wait for: of virtual nodes."""
        lines = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/ns/pid") == os.readlink("/proc/self/ns/pid"):
                    continue
                for thread in os.listdir(f"/proc/{name}/task"):
                    texts = []
                    for what in ("comm", "stat", "wchan", "syscall"):
                        with open(f"/proc/{name}/task/{thread}/{what}", encoding="utf-8") as file:
                            texts.append(file.read().strip())
                    lines.append(f"{name} {thread}: {texts[0]} {texts[1].rsplit(')', 1)[1].split()[0]} {texts[2]} {texts[3]}")
        return "\n".join(lines)

    def proxy_logs(self, node):
        texts = []
        directory = os.path.join(self.state, node)
        for name in sorted(os.listdir(directory)):
            if name.startswith("proxy."):
                with open(os.path.join(directory, name), encoding="utf-8", errors="replace") as file:
                    texts.append(f"--- {name}\n{file.read()}")
        return "\n".join(texts)

    def checkpoints(self):
        done = subprocess.run([virtualnode.program("singularityctl"), "store", "--store", self.store, "ls"], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        if "there is none in that directory" in done.stderr:
            return []  # the first checkpoint makes it
        assert done.returncode == 0, done.stderr
        return [line.split()[0] for line in done.stdout.splitlines()[1:] if not line.startswith("uid")]

    def store_is_whole(self):
        done = subprocess.run([virtualnode.program("singularityctl"), "store", "--store", self.store, "verify"], capture_output=True,
                              text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def workers(self):
        """Host process ids of this agent's workers. What one has forked is no worker: it is about to be criu."""
        parents = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/stat", encoding="utf-8") as stat, open(f"/proc/{name}/environ", "rb") as environment:
                    words = stat.read()
                    if "(singularity-wor)" in words and self.directory.encode() in environment.read():
                        parents[int(name)] = int(words.rpartition(")")[2].split()[1])
        return [pid for pid, parent in parents.items() if parent not in parents]

    def proxies(self, node):
        """Host process ids of a node's device proxies."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/cmdline", "rb") as words:
                    text = words.read()
                    if b"singularity-proxyd" in text and os.path.join(self.state, node).encode() + b"/" in text:
                        found.append(int(name))
        return found
