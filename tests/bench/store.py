# SPDX-License-Identifier: GPL-2.0-or-later
"""The checkpoint store against plain files on the same file system: 768 MiB written, read, verified, in turns."""

import json
import os
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PROGRAM = os.path.join(TOP, "build", "release", "tests", "unit", "store_bench")
ROUNDS = 5
NEEDS = ("store_bench",)
FIGURES = {
    "write_ratio": f"throughput of a checkpoint of random bytes over write(2) and fsync(2) of the same bytes, median of {ROUNDS}",
    "write_compressible_ratio": "the same with bytes that compress to less than half",
    "read_ratio": "throughput of reading the checkpoint, checked, over read(2) of the same bytes, neither cached",
    "read_cached_ratio": "the same, both in the page cache",
    "verify_ratio": "throughput of verifying the checkpoint over read(2) of the same bytes, neither cached",
    "write_gbps": "throughput of the checkpoint of random bytes, GB/s",
    "unchanged_gbps": "throughput of a checkpoint of which nothing has changed, GB/s",
    "read_gbps": "throughput of reading, not cached, GB/s",
    "read_cached_gbps": "throughput of reading from the page cache, GB/s",
    "gc_s": "collecting the three checkpoints of a round, seconds",
}


def run(say):
    # On the disk that holds the checkout: /tmp may be memory.
    where = os.environ.get("SINGULARITY_BENCH_DIRECTORY", os.path.join(TOP, "build"))
    with tempfile.TemporaryDirectory(prefix="bench-store-", dir=where) as directory:
        say(f"{ROUNDS} rounds in {directory}")
        program = os.environ.get("SINGULARITY_STORE_BENCH", PROGRAM)
        answer = subprocess.run([program, directory, str(ROUNDS)], capture_output=True, text=True, check=False, timeout=1200)
    if answer.returncode != 0:
        raise SystemExit(f"bench store: {answer.stderr.strip()}")
    return {key: statistics.median(values) for key, values in json.loads(answer.stdout).items()}
