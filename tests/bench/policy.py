# SPDX-License-Identifier: GPL-2.0-or-later
"""How long the scheduling policy takes for a plan, from 1,000 to 1,000,000 GPUs, on one core."""

import math
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PROGRAM = os.path.join(TOP, "build", "release", "tests", "unit", "policy-bench")
REPEATS = 9
SIZES = {"1k": 1_000, "10k": 10_000, "100k": 100_000, "1m": 1_000_000}
NEEDS = ("policy-bench",)
FIGURES = {
    **{f"plan_ms_{name}": f"{gpus:,} GPUs, {gpus // 10:,} running and {gpus // 20:,} pending jobs of three tiers, ms, median of {REPEATS}"
       for name, gpus in SIZES.items()},
    "quiet_ms_100k": f"100,000 GPUs, nothing pending and nothing to do, ms, median of {REPEATS}",
    "gang_ms_100k": f"100,000 GPUs, a premium gang of 92,000 against basic jobs, ms, median of {REPEATS}",
    "growth_ratio": "time from 10,000 to 1,000,000 GPUs over n log n (caches included; 1: exactly n log n)",
}


def measure(gpus):
    program = os.environ.get("SINGULARITY_POLICY_BENCH", PROGRAM)
    answer = subprocess.run([program, str(gpus), str(REPEATS)], capture_output=True, text=True, check=False, timeout=600)
    if answer.returncode != 0:
        raise SystemExit(f"bench policy: {answer.stderr.strip()}")
    words = answer.stdout.split()
    return {key: float(value) for key, value in zip(words[::2], words[1::2])}


def run(say):
    found = {}
    for name, gpus in SIZES.items():
        say(f"{gpus:,} GPUs")
        found[name] = measure(gpus)
    grown = found["1m"]["full_ms"] / found["10k"]["full_ms"]
    log_n = (SIZES["1m"] * math.log(SIZES["1m"])) / (SIZES["10k"] * math.log(SIZES["10k"]))
    return {
        **{f"plan_ms_{name}": values["full_ms"] for name, values in found.items()},
        "quiet_ms_100k": found["100k"]["quiet_ms"],
        "gang_ms_100k": found["100k"]["gang_ms"],
        "growth_ratio": grown / log_n,
    }
