# SPDX-License-Identifier: GPL-2.0-or-later
"""How long the virtual cluster takes to come up and to go."""

import os
import statistics
import time

from virtualcluster import Cluster

RUNS = 5
NEEDS = ("programs",)
FIGURES = {
    "up_s": f"2 nodes, Slurm 24.11, from nothing to all nodes idle, seconds, median of {RUNS}",
    "up_accounting_s": f"the same with MariaDB and slurmdbd, seconds, median of {RUNS}",
    "down_s": f"from `down` to nothing left, seconds, median of {RUNS}",
}


def run(say):
    taken = {key: [] for key in FIGURES}
    for index in range(RUNS):
        say(f"run {index + 1} of {RUNS}")
        for key, accounting in (("up_s", False), ("up_accounting_s", True)):
            start = time.monotonic()
            cluster = Cluster.up(owner=os.getpid(), accounting=accounting)
            taken[key].append(time.monotonic() - start)
            start = time.monotonic()
            cluster.down()
            taken["down_s"].append(time.monotonic() - start)
    return {key: statistics.median(values) for key, values in taken.items()}
