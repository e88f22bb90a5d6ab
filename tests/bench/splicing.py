# SPDX-License-Identifier: GPL-2.0-or-later
"""Ranks that share a software GPU, each with the memory of a whole one (docs/splicing.md): what that costs. All in one run; each
device has one thread, so with fewer processors than devices the ranks with a device each are slowed down, and the ratios are too good."""

import contextlib
import os
import re
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(HERE), "ranks", "collectives"))
import ranked  # noqa: E402

NEEDS = ("programs", "ranks_programs")
FIGURES = {
    "fits_ratio": "2 ranks that compute, with 30 % of a device each, on 1 over twice that on 2",
    "spliced_ratio": "the same with 90 % of a device each: they take turns",
    "spliced_never_ratio": "the same, what they have in common is not looked for",
    "spliced_always_ratio": "the same, what they have in common is always looked for",
    "copied_ratio": "of 4 replicas with 60 % of a device each on 1: bytes copied when what is common is looked for, over those when not",
    "switches_per_step": "turns in a step of these, over the number of ranks",
    "copied_mib_per_step": "of each of these ranks, MiB copied in a step, out and in",
    "memory_mib": "of each of these ranks, MiB",
    "hash_ratio": "finding out what memory contains over copying it, in seconds for each byte: on this device",
}

MEMORY = 256  # MiB, of a device
ROUNDS = 3
STEPS = 4
COMPUTE = 60  # kernels for each buffer and step
TURN = re.compile(r"a turn begins after")
COPIED = re.compile(r"of what has moved so far (\d+) MiB were copied in (\d+) ms and (\d+) MiB were there already; the content of (\d+) MiB was "
                    r"found out in (\d+) ms")


def trained(ranks, devices, percent, steps, compute, how="auto"):
    """Seconds, and the proxies' log."""
    with tempfile.TemporaryDirectory() as directory:
        log = os.path.join(directory, "log")
        line, environment = ranked.command(ranks, devices, ranked.built("filling_ranks"), "alike", str(percent), str(steps), str(compute),
                                           options=(f"--share-content={how}", f"--log-file={log}", "--log-level=debug"),
                                           SINGULARITY_SOFTGPU_MEMORY=f"{MEMORY}M", SINGULARITY_SOFTGPU_THREADS="1")
        began = time.monotonic()
        ranked.finished((line, environment))
        took = time.monotonic() - began
        with contextlib.suppress(FileNotFoundError), open(log, encoding="utf-8") as file:
            return took, file.read()
        return took, ""


def ratio(percent, how="auto"):
    """Of medians: without what a run takes for its start, which is that of one with fewer steps."""
    took = {1: [], 2: []}
    for _ in range(ROUNDS):
        for devices, times in took.items():
            start, _ = trained(2, devices, percent, 1, COMPUTE, how)
            whole, _ = trained(2, devices, percent, 1 + STEPS, COMPUTE, how)
            times.append(whole - start)
    return statistics.median(took[1]) / (2 * statistics.median(took[2]))


def copied(how):
    """(MiB copied, its milliseconds, MiB looked at, its milliseconds, turns) of four replicas."""
    _, log = trained(4, 1, 60, STEPS, 1, how)
    mib, copying, _, looked, looking = (int(number) for number in COPIED.findall(log)[-1])
    return mib, copying, looked, looking, len(TURN.findall(log))


def run(say):
    figures = {}
    for key, percent, how in (("fits_ratio", 30, "auto"), ("spliced_ratio", 90, "auto"), ("spliced_never_ratio", 90, "never"),
                              ("spliced_always_ratio", 90, "always")):
        say(f"{key}: 2 ranks on 1 device and on 2")
        figures[key] = ratio(percent, how)
    say("4 replicas on 1 device")
    without, _, _, _, _ = copied("never")
    mib, copying, looked, looking, turns = copied("always")
    figures["copied_ratio"] = mib / without
    figures["switches_per_step"] = turns / 4 / STEPS
    figures["copied_mib_per_step"] = mib / 4 / STEPS
    figures["memory_mib"] = MEMORY * 0.6
    figures["hash_ratio"] = (looking / looked) / (copying / mib)
    return figures
