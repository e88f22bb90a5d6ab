# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs of three tiers on a virtual cluster of 6 nodes with 8 GPUs and a planner: what each tier loses, whether it has what it was
promised, and whether GPUs idle while somebody could use them. The jobs count, so that all that they lose is waiting, and being moved; a
smaller size costs them nothing."""

import os
import random
import re
import shlex
import statistics
import time

from virtualcluster import Cluster
from virtualcluster.errors import wait_for

PERIOD = 2  # seconds between two looks of the planner
NODES, GPUS = 6, 8
JOBS = 40
APART = 13  # seconds between submissions, on average: jobs ask for nearly all of the GPU time
SEED = 1
PAUSE = 0.5  # seconds for each number
NUMBERS = (200, 600)
SAMPLE = 0.5  # seconds
PATIENCE = 1200
GUARANTEES = {"premium": 0.95, "standard": 0.70, "basic": 0.0}  # the presets
YAML = ("agents:\n  address: 0.0.0.0\n  patience: 30s\nstore:\n  directory: /shared/store\n"
        "premium:\n  least_run: 1s\nstandard:\n  least_run: 1s\n  moves_per_hour: 30\nbasic:\n  least_run: 1s\n  moves_per_hour: 60\n"
        f"planner:\n  every: {PERIOD}s\n")
CONF = {
    "SelectType": "select/cons_tres_singularity",
    "PriorityType": "priority/singularity",
    "PriorityWeightQOS": "100000",
    "JobSubmitPlugins": "singularity",
    "AuthInfo": "cred_expire=5",
    "KillWait": "20",
    "PreemptType": "preempt/none",
    "PreemptMode": "OFF",
}
COUNT = "import time\nfor i in range({numbers}):\n    print(i, flush=True)\n    time.sleep({pause})\n"
NEEDS = ("programs",)
FIGURES = {
    **{f"{tier}_lost_s": f"{tier} jobs: from when they could have begun to their end, less the time that their work takes, seconds, median"
       for tier in GUARANTEES},
    **{f"{tier}_most_lost_s": "the most that one of them lost" for tier in GUARANTEES},
    **{f"{tier}_fraction": f"GPU fraction of {tier} jobs: the time that their work takes over that from when they could have begun to their end, median"
       for tier in GUARANTEES},
    **{f"{tier}_kept": f"share of {tier} jobs whose GPU fraction was at least {promised:.2f}" for tier, promised in GUARANTEES.items() if promised},
    "utilisation": "GPU time that jobs held over that of the cluster, until the last job was submitted",
    "idle_ratio": "GPU time that idled while a job waited that could have used it, over that of the cluster",
    "longest_idle_periods": f"the longest that one job waited so, in planning periods of {PERIOD} s (aim 2)",
    "moves_per_job": "how often a job was shrunk, grown, moved or stopped",
}


def submit(cluster, tier, gpus, least, numbers):
    program = f"srun --ntasks={gpus} /usr/bin/python3 -c {shlex.quote(COUNT.format(numbers=numbers, pause=PAUSE))}"
    options = [f"--singularity-elastic={least}-{gpus}"] if least else ["--singularity-off", "--no-requeue"]
    return cluster.submit(*options, f"--qos={tier}", f"--gpus={gpus}", f"--ntasks={gpus}", script=f"#!/bin/sh\n{program}\n")


def gpus_in(tres):
    found = re.search(r"gres/gpu=(\d+)", tres)
    return int(found.group(1)) if found else 0


class Watch:
    """Looks at all jobs again and again. A job that moves has what it had, or is to have, also while it has no nodes."""

    def __init__(self, cluster, least):
        self.held = self.idle = self.looked = 0.0  # GPU seconds; seconds
        self.longest = 0.0
        self._cluster, self._least, self._since, self._at = cluster, least, {}, time.monotonic()

    def look(self):
        lines = self._cluster.slurm("squeue", "-h", "-O", "JobID:12,State:16,RestartCnt:8,tres-alloc:80,tres-per-job:40,StartTime:24").splitlines()
        now = time.monotonic()
        passed, self._at = now - self._at, now
        held, waiting = 0, []
        for line in lines:
            job, state, restarts, alloc, asked = (line[a:b].strip() for a, b in ((0, 12), (12, 28), (28, 36), (36, 116), (116, 156)))
            if state == "PENDING" and restarts == "0":
                waiting.append(int(job))
            elif state == "PENDING":
                held += int(asked.rpartition(":")[2]) if asked.rpartition(":")[2].isdigit() else 0
            else:
                held += gpus_in(alloc)
        free = max(0, NODES * GPUS - held)
        could = [job for job in waiting if self._least[job] <= free]
        self._since = {job: self._since.get(job, now) for job in could}
        self.longest = max([self.longest, *(now - since for since in self._since.values())])
        self.held += passed * min(held, NODES * GPUS)
        self.idle += passed * free if could else 0
        self.looked += passed
        return not lines


def run(say):
    draw = random.Random(SEED)
    with Cluster.up(owner=os.getpid(), nodes=NODES, gpus=GPUS, accounting=True, plugstack="required spank_singularity.so\n", conf=CONF,
                    singularity_yaml=YAML) as cluster:
        cluster.start_agents()
        cluster.start_daemon("ctl", "singularity-planner")
        jobs, least = {}, {}
        watch = Watch(cluster, least)
        due = time.monotonic()
        while len(jobs) < JOBS:
            if time.monotonic() >= due:
                tier, gpus = draw.choice(list(GUARANTEES)), draw.choice([1, 1, 2, 2, 4, 8])
                low, numbers = draw.randint(1, gpus) if draw.random() < 0.75 else None, draw.randint(*NUMBERS)
                job = submit(cluster, tier, gpus, low, numbers)
                jobs[job], least[job] = (tier, numbers * PAUSE), low or gpus
                due += draw.expovariate(1 / APART)
                say(f"job {job} of {JOBS}: {tier}, {f'{low}-' if low else ''}{gpus} GPUs, {numbers * PAUSE:.0f} s")
            watch.look()
            time.sleep(SAMPLE)
        used = watch.held / (watch.looked * NODES * GPUS)
        wait_for(watch.look, PATIENCE, "all jobs to end", interval=SAMPLE)
        lost, fractions, moves = {tier: [] for tier in GUARANTEES}, {tier: [] for tier in GUARANTEES}, 0
        for job, (tier, work) in jobs.items():
            record = wait_for(lambda number=job: ended(cluster, number), 60, f"sacct to know the end of job {job}", interval=1)
            if record["State"] != "COMPLETED":
                raise RuntimeError(f"job {job} is {record['State']}")
            took = record["End"] - record["Eligible"]
            lost[tier].append(took - work)
            fractions[tier].append(work / took)
            moves += record["Restarts"]
            if work / took < GUARANTEES[tier]:
                say(f"job {job} ({tier}) has missed its guarantee: {took:.0f} s for {work:.0f} s of work, moved {record['Restarts']} times")
    return {
        **{f"{tier}_lost_s": statistics.median(one) for tier, one in lost.items()},
        **{f"{tier}_most_lost_s": max(one) for tier, one in lost.items()},
        **{f"{tier}_fraction": statistics.median(one) for tier, one in fractions.items()},
        **{f"{tier}_kept": sum(one >= promised for one in fractions[tier]) / len(fractions[tier]) for tier, promised in GUARANTEES.items() if promised},
        "utilisation": used,
        "idle_ratio": watch.idle / (watch.looked * NODES * GPUS),
        "longest_idle_periods": watch.longest / PERIOD,
        "moves_per_job": moves / JOBS,
    }


def ended(cluster, job):
    """Of its last run by sacct; when it could have begun first. Nothing: it does not know yet."""
    text = cluster.slurm("env", "SLURM_TIME_FORMAT=%s", "sacct", "-X", "-n", "-P", "-D", "-j", str(job), "-o", "State,Eligible,End")
    rows = [line.split("|") for line in text.splitlines()]
    if not rows or not rows[-1][2].isdigit():
        return None
    return {"State": rows[-1][0], "Eligible": min(int(row[1]) for row in rows if row[1].isdigit()), "End": int(rows[-1][2]), "Restarts": len(rows) - 1}
