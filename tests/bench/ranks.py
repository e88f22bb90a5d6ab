# SPDX-License-Identifier: GPL-2.0-or-later
"""Collectives of ranks, on host memory: what they cost beyond moving the bytes. The barrier, and ranks that share a device."""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
RANKED = os.path.join(TOP, "tests", "ranks", "collectives")
sys.path.append(os.path.join(TOP, "tests", "proxy"))
import image_proxy  # noqa: E402
import proxied  # noqa: E402

PROGRAM = os.path.join(TOP, "build", "release", "proxy", "collectives", "singularity-collectives-bench")
PATIENCE = 180  # seconds, for what takes one
NEEDS = (
    "programs", "singularity-collectives-bench", "nccl-without-gate", "singularity-barrier", "singularity-images",
    "workload_train_digits", "workload_train_data",
)
FIGURES = {
    "collective_ratio": "all-reduce of 64 MB among 2 processes of a host, throughput over memcpy's",
    "tcp_ratio": "all-reduce of 64 MB among 2 hosts (network namespaces), throughput over that of one TCP stream between them",
    "collective_s": "the all-reduce on one host, seconds, median",
    "tcp_s": "the all-reduce between hosts, seconds, median",
    "memcpy_s": "for comparison: memcpy of 64 MB, seconds, median",
    "barrier_ms": "until all of 8 ranks that train on one software GPU stand between two collectives, milliseconds, median",
    "barrier_max_ms": "the same, the longest",
    "steady_overhead_ratio": "8 ranks that train on one software GPU, time with the barrier's counting over without",
    "n_on_1_ratio": "8 processes that train at the same time on one software GPU, over 8 times one alone",
    "stream_s": "for comparison: 64 MB through one TCP stream between the hosts, seconds, median",
}


RANKS = 8
BARRIERS = 20
STEPS = 60  # of a training, long enough for all of them
ROUNDS = 3
PAIRS = 7


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


def together(count):
    """Seconds that so many processes take to train at the same time on one device."""
    launch = [sys.executable, os.path.join(RANKED, "launch.py"), str(count), proxied.program("workloads", "train_digits"), "2"]
    command, environment = proxied.proxied(launch, WORKLOADS_DATA=os.path.join(TOP, "tests", "workloads", "data"))
    began = time.monotonic()
    proxied.run(command, environment)
    return time.monotonic() - began


def trained(**variables):
    """Seconds that a training of all ranks takes on one device."""
    launch = [sys.executable, os.path.join(RANKED, "launch.py"), str(RANKS), proxied.program("workloads", "train_data"), str(STEPS)]
    command, environment = proxied.proxied(launch, WORKLOADS_DATA=os.path.join(TOP, "tests", "workloads", "data"), **variables)
    began = time.monotonic()
    proxied.run(command, environment)
    return time.monotonic() - began


def linked(directory, names, there):
    for name in names:
        os.symlink(os.path.join(directory, name), os.path.join(there, name))


def steady_overhead():
    """One after the other, since a machine is faster at one time than at another."""
    with tempfile.TemporaryDirectory() as libraries:
        others = set(os.listdir(proxied.BUILD)) - {"client"}
        linked(os.path.abspath(proxied.BUILD), others, libraries)
        client = os.path.join(libraries, "client")
        os.mkdir(client)
        linked(os.path.abspath(proxied.program("client")), [name for name in os.listdir(proxied.program("client")) if "nccl" not in name], client)
        linked(os.path.abspath(proxied.program("bench", "without-gate")), ["libnccl.so.2"], client)
        return statistics.median(trained() / trained(SINGULARITY_LIBDIR=libraries) for _ in range(PAIRS))


def stand(control):
    """Milliseconds, and of how many processes."""
    with subprocess.Popen([proxied.program("proxy", "singularity-barrier"), control], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:
        words = process.stdout.readline().split()
        process.stdin.close()
        process.wait(PATIENCE)
    said = dict(zip(words[::2], map(int, words[1::2])))
    return (said["microseconds"] / 1e3, said["processes"]) if said else (0, 0)


def barriers():
    """Milliseconds of each."""
    launch = [sys.executable, os.path.join(RANKED, "launch.py"), str(RANKS), proxied.program("workloads", "train_data"), str(STEPS)]
    found = []
    with image_proxy.Place() as place:
        place.start_all()
        redirected = {"LD_AUDIT": proxied.program("libsingularity-redirect.so"), "SINGULARITY_REDIRECT_TO": proxied.program("client")}
        with image_proxy.running(launch, place.environment(**redirected)) as training:
            while training.poll() is None and len(found) < BARRIERS:
                took, processes = stand(place.control(0))
                if processes == RANKS:
                    found.append(took)
                time.sleep(0.02)
            training.result()
    if len(found) < BARRIERS:
        raise SystemExit(f"bench ranks: the training ended after {len(found)} barriers of {BARRIERS}")
    return found


def run(say):
    say("barrier")
    stood = barriers()
    say("steady state")
    overhead = steady_overhead()
    say("8 on 1")
    ratios = [together(RANKS) / (RANKS * together(1)) for _ in range(ROUNDS)]
    say("one host")
    copied = finish(start(["memcpy"]))
    beside = all_reduce([("host", "tcp:127.0.0.1:0", ())] * 2, f"unix:@singularity-bench-{os.getpid()}")
    say("two hosts")
    with Hosts() as hosts:
        one = stream(hosts)
        distant = all_reduce([(f"host{number}", f"tcp:{hosts.address(number)}:0", hosts.before(number)) for number in range(2)],
                             f"tcp:{hosts.address(0)}:7000")
    return {"barrier_ms": statistics.median(stood), "barrier_max_ms": max(stood), "steady_overhead_ratio": overhead,
            "n_on_1_ratio": statistics.median(ratios),
            "collective_ratio": copied / beside, "tcp_ratio": one / distant, "collective_s": beside, "tcp_s": distant,
            "memcpy_s": copied, "stream_s": one}
