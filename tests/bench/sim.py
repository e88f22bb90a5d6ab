# SPDX-License-Identifier: GPL-2.0-or-later
"""The four scheduling policies on both traces at full length, with three mixes of tiers, on a cluster of 70 % of their peak demand, and
on one of 40 %, where it is crowded. Tables go to stderr."""

import itertools
import json
import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PROGRAM = os.path.join(TOP, "build", "release", "select-plugin", "simulator", "singularity-sim")
TRACES = ("philly2017", "itp2021")
MIXES = ("30/40/30", "10/60/30", "50/30/20")  # premium/standard/basic
SHARES = (70, 40)  # percent of the peak
PATIENCE = 1200  # seconds, for the four policies on one trace
_WORST = f"the worst of {len(MIXES)} mixes"
_OF_TRACE = {
    "premium_met": f"premium jobs whose guarantee is met, with an hour's allowance, {_WORST} (aim 0.99)",
    "standard_met": "standard jobs likewise (aim 0.99)",
    "held_of_bound": f"GPU time held over what demand and capacity allow, {_WORST} (aim 0.99)",
    "over_slurm": f"mean completion time of Slurm-like over ours, {_WORST} (aim 2)",
    "over_tiresias": f"mean completion time of Tiresias over ours, {_WORST} (aim: above 1)",
    "seconds": "the slowest policy on the whole trace, one core, seconds (aim 60)",
}
NEEDS = ("singularity-sim",)
FIGURES = {f"{trace}_{share}_{key}": f"{trace} at {share} %: {text}" for trace in TRACES for share in SHARES for key, text in _OF_TRACE.items()}


def simulate(trace, share, mix, say):
    """{policy: its statistics}, and seconds of the slowest."""
    path = os.path.join(TOP, "tests", "traces", f"{trace}.csv.zst")
    name = f"/tmp/bench-sim-{os.getpid()}.json"
    try:
        done = subprocess.run([PROGRAM, path, "--share-of-peak", str(share / 100), "--mix", mix, "--json", name],
                              capture_output=True, text=True, check=False, timeout=PATIENCE)
        if done.returncode != 0:
            raise SystemExit(f"bench sim: {done.stderr.strip()}")
        with open(name, encoding="ascii") as file:
            results = {one["policy"]: one for one in json.load(file)["results"]}
    finally:
        if os.path.exists(name):
            os.unlink(name)
    say(done.stdout)
    seconds = {policy: float(value) for policy, value in re.findall(r"^(\w+): ([0-9.]+) s, \d+ plans$", done.stderr, re.MULTILINE)}
    if set(seconds) != set(results):
        raise SystemExit(f"bench sim: the simulator told the times of {sorted(seconds)}, and results of {sorted(results)}")
    return results, max(seconds.values())


def figures_of(results):
    ours = results["singularity"]
    completion = {policy: one["tiers"]["all"]["completion_s"]["mean"] for policy, one in results.items()}
    return {
        "premium_met": ours["tiers"]["premium"]["met_in_window"],
        "standard_met": ours["tiers"]["standard"]["met_in_window"],
        "held_of_bound": ours["utilisation_of_bound"],
        "over_slurm": completion["slurm"] / completion["singularity"],
        "over_tiresias": completion["tiresias"] / completion["singularity"],
    }


def run(say):
    out = {}
    for trace, share in itertools.product(TRACES, SHARES):
        found, slowest = [], 0
        for mix in MIXES:
            say(f"{trace} at {share} % of its peak, {mix}: four policies")
            results, seconds = simulate(trace, share, mix, say)
            found.append(figures_of(results))
            slowest = max(slowest, seconds)
        for key in found[0]:
            out[f"{trace}_{share}_{key}"] = min(one[key] for one in found)
        out[f"{trace}_{share}_seconds"] = slowest
    return out
