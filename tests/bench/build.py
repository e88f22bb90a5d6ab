# SPDX-License-Identifier: GPL-2.0-or-later
"""How long it takes to come to the demo and to passed tests, from nothing: no build, no cached compilation, no root directory.

./dev has it measured on the host before this runs (from_nothing, in SINGULARITY_TEST_FROM_NOTHING), since that is where it works.
"""

import os

NEEDS = ()
FIGURES = {
    "demo_from_nothing_s": "./dev demo with a new cache directory, root directories included, seconds (aim 1200 with 2 processors)",
    "demo_again_s": "./dev demo once more, seconds (aim 240)",
    "test_from_nothing_s": ".ci/run with a new cache directory, root directories included, seconds (aim 3600)",
    "test_again_s": ".ci/run in another checkout, with the cache of the first, seconds (aim 1800)",
    "rebuild_after_one_change_s": "what the demo runs, built again after a change of one .cpp, seconds",
    "rebuild_after_header_change_s": "the same after a change of a header that nearly all include, seconds",
    "longest_unit_s": "the longest single compilation for Slurm 24.11, beside others, seconds",
    "units": "compilations for Slurm 24.11",
}


def units(path):
    """{object file: seconds} of a log of ninja's: start and end in milliseconds, time stamp, output, hash."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            if len(fields) == 5 and fields[3].endswith(".o"):
                found[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return found


def run(say):
    directory = os.environ["SINGULARITY_TEST_FROM_NOTHING"]
    with open(os.path.join(directory, "times"), encoding="ascii") as file:
        figures = {f"{key}_s": float(seconds) for key, seconds in map(str.split, file)}
    compiled = units(os.path.join(directory, "steps-24.11"))
    for name, seconds in sorted(compiled.items(), key=lambda unit: -unit[1])[:20]:
        say(f"{seconds:6.1f} s  {name}")
    return {**figures, "longest_unit_s": max(compiled.values()), "units": len(compiled)}
