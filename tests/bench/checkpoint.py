# SPDX-License-Identifier: GPL-2.0-or-later
"""A virtual node with devices, checkpointed and restored: against plain files on the same file system, in one run."""

import contextlib
import json
import os
import statistics
import sys
import time

import proxied

os.environ.setdefault("CTEST_BINARY_DIR", os.path.abspath(proxied.BUILD))
for part in ("node", "checkpoint"):
    sys.path.insert(0, os.path.join(proxied.TOP, "tests", part))
import nodes  # noqa: E402
import virtualnode  # noqa: E402

ROUNDS = 3
LARGE = 1024  # MiB of device memory, noise
RANKS = 4
REPLICA = 256  # MiB of each rank
SMALL = 8
FILES = 1000  # of 4 KiB each
NEEDS = ("programs", "singularity-driver-calls")
FIGURES = {
    "dump_ratio": f"throughput of a checkpoint of {LARGE} MiB of noise on a device over write(2) and fsync(2) of the same bytes",
    "restore_ratio": "throughput of its restore over read(2) of the same bytes, neither cached",
    "pause_ms": f"how long the program stands still for it, with --continue, ms, median of {ROUNDS}",
    "incremental_ratio": "bytes that a second checkpoint adds if nothing has changed, over those of the first (aim 0.02)",
    "dedup_ratio": f"bytes stored for {RANKS} ranks with the same {REPLICA} MiB over those for one (aim 1.05)",
    "files_pause_ratio": f"how long a program with {FILES} files open for writing stands still, over one that has as many open for reading, "
                         f"median of {ROUNDS} (aim 1.1)",
    "latency_s": f"checkpoint and restore of {RANKS} ranks with {SMALL} MiB each, seconds, median of {ROUNDS} (aim 2)",
}


@contextlib.contextmanager
def agent():
    """A node agent with a store of its own, on the disk that holds the checkout: /tmp may be memory."""
    where = os.environ.get("SINGULARITY_BENCH_DIRECTORY", os.path.join(proxied.TOP, "build"))
    one = virtualnode.Agent(where)
    try:
        yield one
    finally:
        one.close()


def said(one, *words):
    done = one.ctl(*words, user=nodes.USER)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def started(one, ranks, mebibytes):
    """The name of a node whose ranks have their memory filled."""
    calls = proxied.program("bench", "singularity-driver-calls")
    script = f"for rank in $(seq 0 {ranks - 1}); do CUDA_VISIBLE_DEVICES=$rank {calls} keep {mebibytes} & done; wait"
    node = said(one, "run", "--devices", str(ranks), "--backend", "software", "--detach", "--", "sh", "-c", script).split()[0]
    virtualnode.wait_for(lambda: said(one, "logs", node).count("ready") == ranks, "the ranks to fill their memory", 300)
    return node


def checkpoint(one, node, *options):
    return json.loads(said(one, "checkpoint", "--json", *options, node))


def restore(one, node):
    return json.loads(said(one, "restore", "--json", "--detach", node))


def forget(path):
    """What lies under the path is no longer in the page cache."""
    for directory, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(os.path.join(directory, name), os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def plain(directory, size):
    """Seconds of writing and of reading so many bytes with plain files."""
    path = os.path.join(directory, "plain")
    piece = os.urandom(1 << 20)
    start = time.monotonic()
    with open(path, "wb", buffering=0) as file:
        for _ in range(size >> 20):
            file.write(piece)
        os.fsync(file.fileno())
    written = time.monotonic() - start
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.monotonic()
    while os.read(descriptor, 1 << 20):
        pass
    seconds = time.monotonic() - start
    os.close(descriptor)
    os.unlink(path)
    return written, seconds


def large(say):
    out = {"dump_ratio": [], "restore_ratio": [], "pause_ms": [], "incremental_ratio": []}
    for index in range(ROUNDS):
        say(f"{LARGE} MiB on a device, round {index + 1} of {ROUNDS}")
        with agent() as one:
            node = started(one, 1, LARGE)
            writing, reading = plain(one.directory, LARGE << 20)
            first = checkpoint(one, node, "--continue")
            size = first["host_bytes"] + first["devices_bytes"]
            scale = (LARGE << 20) / size
            out["dump_ratio"].append(writing / (first["total_us"] / 1e6) / scale)
            out["pause_ms"].append(first["pause_us"] / 1e3)
            second = checkpoint(one, node)
            out["incremental_ratio"].append(second["stored_bytes"] / first["stored_bytes"])
            forget(one.store)
            back = restore(one, node)
            out["restore_ratio"].append(reading / (back["total_us"] / 1e6) / scale)
            said(one, "destroy", node)
    return out


def stored(ranks):
    with agent() as one:
        node = started(one, ranks, REPLICA)
        bytes_stored = checkpoint(one, node)["stored_bytes"]
    return bytes_stored


HOLDS = """
import sys, time
files = []
for number in range(int(sys.argv[2])):
    with open(f"file{number}", "w") as file:
        file.write("x" * 4096)
    files.append(open(f"file{number}", sys.argv[1]))
print("ready", flush=True)
time.sleep(3600)
"""


def files_pause():
    """Of one that writes over one that reads, each saved by itself, in turns."""
    ratios = []
    with agent() as one:
        running = {}
        for mode in ("r", "r+"):
            directory = os.path.join(one.directory, f"files-{mode}")
            os.mkdir(directory)
            os.chmod(directory, 0o777)
            running[mode] = said(one, "run", "--detach", "--", "sh", "-c", f'cd {directory}; exec python3 -c "$@"', "sh", HOLDS, mode, str(FILES))
        for node in running.values():
            virtualnode.wait_for(lambda node=node: "ready" in said(one, "logs", node), "the files to be open", 300)
        for _ in range(ROUNDS):
            pause = {mode: checkpoint(one, node, "--continue")["pause_us"] for mode, node in running.items()}
            ratios.append(pause["r+"] / pause["r"])
        for node in running.values():
            said(one, "destroy", node)
    return ratios


def latency():
    with agent() as one:
        node = started(one, RANKS, SMALL)
        seconds = (checkpoint(one, node)["total_us"] + restore(one, node)["total_us"]) / 1e6
        said(one, "destroy", node)
    return seconds


def run(say):
    nodes.private_mounts()
    out = {key: statistics.median(values) for key, values in large(say).items()}
    say(f"{RANKS} ranks with the same {REPLICA} MiB")
    out["dedup_ratio"] = stored(RANKS) / stored(1)
    say(f"{FILES} open files")
    out["files_pause_ratio"] = statistics.median(files_pause())
    say(f"{RANKS} small ranks")
    out["latency_s"] = statistics.median(latency() for _ in range(ROUNDS))
    return out
