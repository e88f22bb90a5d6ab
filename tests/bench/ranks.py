# SPDX-License-Identifier: GPL-2.0-or-later
"""Collectives of ranks, on host memory: what they cost beyond moving the bytes."""

import contextlib
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PROGRAM = os.path.join(TOP, "build", "release", "proxy", "collectives", "singularity-collectives-bench")
PATIENCE = 180  # seconds, for what takes one
FIGURES = {
    "collective_ratio": "all-reduce of 64 MB among 2 processes of a host, throughput over memcpy's",
    "tcp_ratio": "all-reduce of 64 MB among 2 hosts (network namespaces), throughput over that of one TCP stream between them",
    "collective_s": "the all-reduce on one host, seconds, median",
    "tcp_s": "the all-reduce between hosts, seconds, median",
    "memcpy_s": "for comparison: memcpy of 64 MB, seconds, median",
    "stream_s": "for comparison: 64 MB through one TCP stream between the hosts, seconds, median",
}


def program():
    return os.environ.get("SINGULARITY_COLLECTIVES_BENCH", PROGRAM)


def finish(process):
    said, complaint = process.communicate(timeout=PATIENCE)
    if process.returncode != 0:
        raise SystemExit(f"bench ranks: {complaint.strip()}")
    return float(said.split()[-1])


def start(arguments, before=(), **more):
    return subprocess.Popen([*before, program(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def all_reduce(hosts, rendezvous):
    """Seconds; hosts: for each rank its name, its address, and what its command begins with."""
    key = os.urandom(32)
    processes = []
    with contextlib.ExitStack() as stack:
        for rank, (name, address, before) in enumerate(hosts):
            reading, writing = os.pipe()
            os.write(writing, key)
            os.close(writing)
            processes.append(start(["rank", str(rank), str(len(hosts)), name, address, rendezvous], before, stdin=reading))
            stack.callback(processes[-1].kill)
            os.close(reading)
        return max(finish(process) for process in processes)


class Hosts:
    """Two network namespaces with a cable between them; they go with the processes that hold them."""

    def __enter__(self):
        self.holders = [subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE)
                        for _ in range(2)]
        for holder in self.holders:
            holder.stdout.readline()  # it has its namespace
        first, second = (str(holder.pid) for holder in self.holders)
        self.run(0, "ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", second)
        for number, _ in enumerate((first, second)):
            self.run(number, "ip", "address", "add", f"{self.address(number)}/24", "dev", "cable")
            self.run(number, "ip", "link", "set", "cable", "up")
            self.run(number, "ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        for holder in self.holders:
            holder.kill()
            holder.wait()

    @staticmethod
    def address(number):
        return f"10.77.0.{number + 1}"

    def before(self, number):
        return ["nsenter", "--target", str(self.holders[number].pid), "--net"]

    def run(self, number, *command):
        subprocess.run([*self.before(number), *command], check=True, timeout=PATIENCE)


def stream(hosts):
    address = f"tcp:{hosts.address(1)}:7001"
    receiver = start(["receive", address], hosts.before(1))
    try:
        receiver.stdout.readline()
        sender = start(["send", address], hosts.before(0))
        try:
            return finish(receiver)
        finally:
            sender.kill()
            sender.communicate()
    finally:
        receiver.kill()


def run(say):
    say("one host")
    copied = finish(start(["memcpy"]))
    beside = all_reduce([("host", "tcp:127.0.0.1:0", ())] * 2, f"unix:@singularity-bench-{os.getpid()}")
    say("two hosts")
    with Hosts() as hosts:
        one = stream(hosts)
        distant = all_reduce([(f"host{number}", f"tcp:{hosts.address(number)}:0", hosts.before(number)) for number in range(2)],
                             f"tcp:{hosts.address(0)}:7000")
    return {"collective_ratio": copied / beside, "tcp_ratio": one / distant, "collective_s": beside, "tcp_s": distant,
            "memcpy_s": copied, "stream_s": one}
