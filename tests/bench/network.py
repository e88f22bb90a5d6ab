# SPDX-License-Identifier: GPL-2.0-or-later
"""The networks of jobs: what the way out of a job costs beside the host's own, and that it costs the ranks nothing."""

import contextlib
import os
import statistics
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ.setdefault("CTEST_BINARY_DIR", os.path.join(TOP, "build", "release"))
sys.path.append(os.path.join(TOP, "tests", "network"))
import wiring  # noqa: E402

NEEDS = ("programs",)
FIGURES = {
    "outside_ratio": "one TCP stream from a node to a host outside of its job, bytes per second of processor time over those of its host's own stream "
                     "(aim 0.9)",
    "outside_speed_ratio": "the same, bytes per second over those of its host's own stream",
    "outside_gbit_s": "the node's stream, Gbit/s, median",
    "host_gbit_s": "its host's own, Gbit/s, median",
    "ranks_speed_ratio": "a stream between nodes on two hosts in a job with a way out over one in a job without",
    "ranks_gbit_s": "a stream between nodes on two hosts, Gbit/s, median",
}
ROUNDS = 9
SECONDS = 2
SINK = ("import socket, sys; s = socket.create_server(('', 4000)); print('up', flush=True); c, _ = s.accept(); b = bytearray(1 << 20); n = 0\n"
        "while got := c.recv_into(b): n += got\n"
        "print(n)")
SOURCE = ("import socket, sys, time; c = socket.create_connection((sys.argv[1], 4000)); b = bytes(1 << 20); end = time.monotonic() + float(sys.argv[2])\n"
          "while time.monotonic() < end: c.sendall(b)")


def busy():
    """Seconds of processor time of the whole machine: what the kernel does for packets counts for nobody."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, soft, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def stream(source, sink):
    """(bytes per second, bytes per second of processor time)"""
    server = wiring.start("python3", "-c", SINK, pid=sink.pid, stdout=-1)
    try:
        server.stdout.readline()
        before = busy()
        wiring.run("python3", "-c", SOURCE, sink.address, str(SECONDS), pid=source.pid)
        count = int(server.communicate(timeout=60)[0])
        return count / SECONDS, count / (busy() - before)
    finally:
        server.kill()
        server.wait()


def run(say):
    with tempfile.TemporaryDirectory() as directory, contextlib.closing(wiring.Wiring(directory)) as wires:
        one, two, outside = (wires.host(number) for number in (1, 2, 3))
        for host in (one, two):
            wiring.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward", pid=host.pid)
        free, _ = wires.job(1, {1: one, 2: two}, wiring.EVERYTHING)
        shut, _ = wires.job(2, {1: one, 2: two})
        pairs = {"host": (one, outside), "node": (free[1], outside), "ranks": (free[1], free[2]), "shut": (shut[1], shut[2])}
        speeds = {name: [] for name in pairs}
        say(f"{len(pairs)} streams in turn, {ROUNDS} rounds of {SECONDS} s each")
        for _ in range(ROUNDS):
            for name, (source, sink) in pairs.items():
                speeds[name].append(stream(source, sink))

    def median(of):
        return statistics.median(speed for speed, _ in speeds[of])

    def ratio(of, to, part):
        return statistics.median(a[part] / b[part] for a, b in zip(speeds[of], speeds[to]))

    gbit = 8e-9
    return {
        "outside_ratio": ratio("node", "host", 1), "outside_speed_ratio": ratio("node", "host", 0),
        "outside_gbit_s": median("node") * gbit, "host_gbit_s": median("host") * gbit,
        "ranks_speed_ratio": ratio("ranks", "shut", 0), "ranks_gbit_s": median("ranks") * gbit,
    }
