# SPDX-License-Identifier: GPL-2.0-or-later
"""What the device proxy costs, on the software GPU: every ratio is of two things measured in one run."""

import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time

import proxied

RUNS = 5
EPOCHS = 40  # of the training program: some seconds
PATIENCE = 60  # seconds, for what takes milliseconds
CLIENTS = 8
NEEDS = ("programs", "singularity-driver-calls", "workload_train_digits", "workload_vector_add")
FIGURES = {
    "launch_ns": "client time of an asynchronous kernel launch, ns, median of batches (aim 300)",
    "sync_rtt_us": "empty call with a reply, us, median (aim 3)",
    "h2d_ratio": "64 MB from pageable host memory to the device, throughput over memcpy's (aim 0.8)",
    "h2d_pinned_ratio": "the same from pinned memory (aim 0.95)",
    "d2h_ratio": "64 MB from the device to pageable host memory, throughput over memcpy's (aim 0.8)",
    "d2h_pinned_ratio": "the same to pinned memory (aim 0.95)",
    "h2d_direct_ratio": "for comparison: pageable, without the proxy",
    "relay_ratio": "for comparison: two threads that hand 64 MB on through 512 KiB, over memcpy's: what this machine allows",
    "launch_direct_ns": "for comparison: a launch without the proxy, on the software GPU",
    "train_ratio": f"training program of {EPOCHS} epochs, software GPU of one thread, time through the proxy over time "
                   f"without, median of {RUNS} pairs (aim 1.03)",
    "start_ms": f"time that the proxy's own start and end add to a program, ms, median of {RUNS} pairs",
    "clients_8_ratio": f"{CLIENTS} clients of one proxy at once, time over that of one after the other",
    "client_rss_mb": "memory of a client process that CUDA through the proxy adds, MB (aim 32)",
    "proxy_rss_mb_per_client": "memory of the proxy that a client adds, beyond what the driver takes for it alone, MB (aim 64)",
    "client_death_ms": f"from a client's kill -9 until all its memory is free, ms, median of {RUNS} (promise 1000)",
    "proxy_death_ms": f"from the proxy's kill -9 until a client's call has failed, ms, median of {RUNS} (promise 1000)",
}


def timed(command, environment):
    start = time.monotonic()
    proxied.run(command, environment)
    return time.monotonic() - start


class Proxy:
    """One singularity-proxyd on the software GPU, for several clients."""

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="singularity-bench-")
        self.socket = os.path.join(self.directory.name, "0.sock")
        ready, writing = os.pipe()
        with open(os.path.join(self.directory.name, "log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [proxied.program("singularity-proxyd"), "--driver", proxied.program("softgpu", "libcuda.so.1"), "--device", "0",
                 "--socket", self.socket, "--ready-fd", str(writing), "--die-with-parent"], pass_fds=[writing], stderr=log)
        os.close(writing)
        with os.fdopen(ready) as line:
            if not line.readline():
                raise RuntimeError("singularity-proxyd did not start")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.directory.cleanup()

    def environment(self):
        return dict(os.environ, SINGULARITY_PROXY_SOCKETS=self.socket, LD_LIBRARY_PATH=proxied.program("client"))

    def resident_mb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024


def hold(command, environment):
    """A client that has done a little and waits; (process, what it says of its memory)."""
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lines = []
    for line in process.stdout:
        if line == "ready\n":
            return process, proxied.figures("".join(lines))
        lines.append(line)
    raise RuntimeError(f"{' '.join(command)} ended with {process.wait()} before it was ready")


def memory(calls):
    with Proxy() as proxy:
        held = [hold([calls, "hold"], proxy.environment())]
        first = proxy.resident_mb()
        held += [hold([calls, "hold"], proxy.environment()) for _ in range(CLIENTS - 1)]
        each = (proxy.resident_mb() - first) / (CLIENTS - 1)
        client = statistics.median(figures["rss_mb"] for _, figures in held)
        for process, _ in held:
            process.stdin.close()
            process.wait(30)
    return client, each


def clients(calls):
    """Seconds of CLIENTS clients at once and one after the other."""
    with Proxy() as proxy:
        command = [calls, "work"]
        timed(command, proxy.environment())
        start = time.monotonic()
        for _ in range(CLIENTS):
            proxied.run(command, proxy.environment())
        alone = time.monotonic() - start
        start = time.monotonic()
        running = [subprocess.Popen(command, env=proxy.environment(), stdout=subprocess.DEVNULL) for _ in range(CLIENTS)]
        for process in running:
            if process.wait(proxied.DEADLINE) != 0:
                raise RuntimeError("a client of the proxy failed")
        return time.monotonic() - start, alone


class Watcher:
    """A client that says when it sees something: (what, value, time.monotonic() of it)."""

    def __init__(self, calls, environment):
        self.process = subprocess.Popen([calls, "watch"], env=environment, stdout=subprocess.PIPE, text=True)
        self.limit = threading.Timer(PATIENCE, self.process.kill)  # its end is seen as an error

    def __enter__(self):
        self.limit.start()
        return self

    def __exit__(self, *_):
        self.limit.cancel()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def next(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the watching client ended with {self.process.wait()}")
        what, value, when = line.split()
        return what, float(value), float(when)

    def when(self, what, least=0.0):
        """Waits for `what` with a value of at least `least`."""
        while True:
            seen, value, when = self.next()
            if seen == what and value >= least:
                return when


def deaths(calls):
    """Milliseconds until the other side notices: of a client, of the proxy."""
    client, own = [], []
    for _ in range(RUNS):
        with Proxy() as proxy, Watcher(calls, proxy.environment()) as watcher:
            alone = watcher.next()[1]
            held, _ = hold([calls, "hold"], proxy.environment())
            while watcher.next()[1] >= alone:
                pass
            killed = time.monotonic()
            held.kill()
            client.append((watcher.when("free_mb", alone) - killed) * 1000)
            held.wait()
            killed = time.monotonic()
            proxy.process.kill()
            own.append((watcher.when("failed") - killed) * 1000)
    return statistics.median(client), statistics.median(own)


def run(say):
    calls = proxied.program("bench", "singularity-driver-calls")
    say("calls and copies")
    through = proxied.figures(proxied.run(*proxied.proxied([calls, "costs"])))
    plain = proxied.figures(proxied.run(*proxied.direct([calls, "costs"])))
    out = {key: through[key] for key in ("launch_ns", "sync_rtt_us", "h2d_ratio", "h2d_pinned_ratio", "d2h_ratio",
                                         "d2h_pinned_ratio")}
    out["h2d_direct_ratio"] = plain["h2d_ratio"]
    out["relay_ratio"] = plain["relay_ratio"]
    out["launch_direct_ns"] = plain["launch_ns"]
    training = [proxied.program("workloads", "train_digits"), str(EPOCHS)]
    shortest = [proxied.program("workloads", "vector_add")]
    ratios = []
    starts = []
    # The program has a processor of its own, as it has beside a real GPU.
    alone = {"SINGULARITY_SOFTGPU_THREADS": "1"}
    for index in range(RUNS):
        say(f"training, pair {index + 1} of {RUNS}")
        ratios.append(timed(*proxied.proxied(training, **alone)) / timed(*proxied.direct(training, **alone)))
        starts.append(timed(*proxied.proxied(shortest)) - timed(*proxied.direct(shortest)))
    out["train_ratio"] = statistics.median(ratios)
    out["start_ms"] = statistics.median(starts) * 1000
    say(f"{CLIENTS} clients")
    together, alone = clients(calls)
    out["clients_8_ratio"] = together / alone
    say("deaths")
    out["client_death_ms"], out["proxy_death_ms"] = deaths(calls)
    say("memory")
    out["client_rss_mb"], per_client = memory(calls)
    own, figures = hold(*proxied.direct([calls, "hold"]))
    own.stdin.close()
    own.wait(30)
    # What a context of the driver takes is not the proxy's.
    out["proxy_rss_mb_per_client"] = max(0.0, per_client - figures["rss_mb"])
    return out
