# SPDX-License-Identifier: GPL-2.0-or-later
"""A real slurmctld with 100,000 GPUs, stock and with the plugins and the planner: what a cycle takes, and a gang that needs most of them.

12,500 nodes with 8 GPUs each are declared State=CLOUD, so that one daemon is all of the cluster: jobs are placed and never begin."""

import ctypes
import os
import re
import statistics
import threading
import time

from virtualcluster import Cluster
from virtualcluster.errors import ClusterError, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
TRACE = os.path.join(os.path.dirname(HERE), "traces", "itp2021.csv.zst")
NODES = 12500
GPUS = 8  # per node
JOBS = 1500  # the trace's first ones, a node for each GPU that they asked for
LARGEST = 64  # nodes of one of them
GANG = 11500  # nodes
PATIENCE = 1800  # seconds, for slurmctld to place all of them
CONF = {
    "MaxJobCount": "20000",
    "SlurmctldDebug": "info",
    "SchedulerParameters": "defer,sched_interval=5,bf_interval=60",
    "ResumeProgram": "/bin/true",
    "SuspendProgram": "/bin/true",
    "SuspendTime": "86400",
    "ResumeTimeout": "65000",
    "SlurmdTimeout": "0",
}
STOCK = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
OURS = {
    **STOCK,
    "SelectType": "select/cons_tres_singularity",
    "PriorityType": "priority/singularity",
    "JobSubmitPlugins": "singularity",
}
LINES = [
    f"NodeName=c[1-{NODES}] CPUs=16 RealMemory=8000 Gres=gpu:{GPUS} State=CLOUD",
    f"PartitionName=basic Nodes=c[1-{NODES}] Default=YES PriorityTier=1 MaxTime=INFINITE State=UP",
    "PartitionName=real Nodes=n1",  # the one that is there, without GPUs
    f"PartitionName=premium Nodes=c[1-{NODES}] PriorityTier=10 MaxTime=INFINITE State=UP",
]
YAML = "basic:\n  least_run: 1s\nplanner:\n  metrics: /run/singularity-planner/planner.prom\n"
PLANNER = "singularity-planner"

NEEDS = ("programs",)
FIGURES = {
    "cycle_ratio": f"main cycles' time to place {JOBS} jobs, with the plugins over without (aim 1.05)",
    "submit_ratio": "sbatch likewise",
    "stock_place_ms": "main cycles' time for each job placed, stock, ms",
    "stock_gang_s": f"stock: from the submission of a gang of {GANG * GPUS} GPUs to its allocation, seconds",
    "gang_preempt_s": "with the plugins and the planner: the same, seconds",
    "stock_longest_cycle_s": "stock: the longest main cycle meanwhile, seconds",
    "longest_cycle_s": "with the plugins: the same, seconds (aim 2)",
    "stock_longest_answer_s": "stock: the longest time that squeue took meanwhile, seconds",
    "longest_answer_s": "with the plugins: the same, seconds (aim: below MessageTimeout, 10)",
    "plan_ms_100k": "the longest that the planner took to plan, ms",
    "plan_issued_s": "the longest that it took to tell slurmctld of a plan, seconds (aim 2)",
    "plan_moves": "jobs that made room",
}


def trace_sizes():
    """GPUs of the trace's first jobs."""
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_decompress.restype = ctypes.c_size_t
    with open(TRACE, "rb") as file:
        packed = file.read()
    text = ctypes.create_string_buffer(1 << 26)
    size = library.ZSTD_decompress(text, ctypes.c_size_t(len(text)), packed, ctypes.c_size_t(len(packed)))
    if library.ZSTD_isError(ctypes.c_size_t(size)):
        raise RuntimeError(f"{TRACE} cannot be unpacked")
    lines = text.raw[:size].decode("ascii").splitlines()
    column = lines[0].split(",").index("gpus")
    return [min(LARGEST, int(line.split(",")[column])) for line in lines[1:JOBS + 1]]


class Probe:
    """Asks slurmctld what everybody asks, again and again; how long the longest answer took, and how many there were not."""

    def __init__(self, cluster):
        self.longest, self.failed, self._cluster, self._end = 0.0, 0, cluster, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._end.wait(0.2):
            began = time.monotonic()
            answered = self._cluster.controller.run(["squeue", "-h", "-j", "1"], check=False, timeout=PATIENCE)
            self.longest = max(self.longest, time.monotonic() - began)
            self.failed += answered.returncode != 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


def cycles(cluster):
    """Of the main scheduler since `sdiag -r`: seconds in all, and of the longest."""
    text = cluster.slurm("sdiag", timeout=PATIENCE).partition("Main schedule statistics")[2].partition("Backfilling stats")[0]
    value = {key: int(number) for key, number in re.findall(r"^\s*(Max cycle|Total cycles|Mean cycle):\s*(\d+)", text, re.MULTILINE)}
    return value.get("Mean cycle", 0) * value.get("Total cycles", 0) / 1e6, value.get("Max cycle", 0) / 1e6


def running(cluster):
    return int(cluster.slurm("sh", "-c", "squeue -h -t R,CF -o %i | wc -l", timeout=PATIENCE))


def submit_all(cluster, sizes, options, say):
    """Seconds of each sbatch."""
    taken = []
    for at in range(0, len(sizes), 100):
        began = time.monotonic()
        script = "set -e\n" + "".join(
            f"sbatch -Q --nodes={nodes} --ntasks={nodes * GPUS} --gpus={nodes * GPUS} {options(nodes)} --wrap true\n" for nodes in sizes[at:at + 100])
        cluster.controller.run(["sh", "-s"], user="alice", stdin=script, directory="/shared", timeout=PATIENCE)
        taken.append((time.monotonic() - began) / len(sizes[at:at + 100]))
        say(f"{min(at + 100, len(sizes))} of {len(sizes)} jobs are submitted, {taken[-1] * 1000:.0f} ms each")
    return taken


def place_all(cluster, jobs, say):
    def placed():
        now = running(cluster)
        if now != seen[0]:
            seen[0] = now
            say(f"{now} of {jobs} jobs are placed")
        return now >= jobs

    seen = [0]
    wait_for(placed, PATIENCE, f"slurmctld to place {jobs} jobs", interval=5)
    return cycles(cluster)[0]


def gang(cluster, say):
    """Seconds until it has its nodes, of the longest cycle, and of the longest answer."""
    cluster.slurm("sdiag", "-r", timeout=PATIENCE)
    with Probe(cluster) as probe:
        began = time.monotonic()
        job = cluster.slurm("sbatch", "--parsable", "-p", "premium", f"--nodes={GANG}", f"--ntasks={GANG}", f"--gpus-per-node={GPUS}", "--wrap", "true",
                            user="alice", timeout=PATIENCE)

        def has_nodes():
            try:
                return cluster.slurm("squeue", "-h", "-j", job, "-o", "%T", timeout=PATIENCE) not in ("", "PENDING")
            except ClusterError as error:  # it takes longer to answer than clients wait
                say(str(error).partition("\n")[0])
                return False

        wait_for(has_nodes, PATIENCE, "the gang to get its nodes", interval=0.5)
        taken = time.monotonic() - began
        wait_for(lambda: cycles(cluster)[1], 120, "the cycle to end", interval=1)
    say(f"the gang has its nodes after {taken:.1f} s; {probe.failed} questions had no answer")
    return taken, cycles(cluster)[1], probe.longest


def up(conf, **spec):
    return Cluster.up(owner=os.getpid(), nodes=1, gpus=0, conf={**CONF, **conf}, partitions=LINES, **spec)


class Metrics:
    """The largest values that the planner's metrics have had."""

    def __init__(self, cluster):
        self.largest, self._cluster = {}, cluster

    def look(self):
        text = self._cluster.controller.run(["cat", "/run/singularity-planner/planner.prom"], check=False).stdout
        for name, value in re.findall(r"^singularity_planner_(\w+(?:\{kind=\"\w+\"\})?) ([0-9.e+-]+)$", text, re.MULTILINE):
            self.largest[name] = max(self.largest.get(name, 0), float(value))


def stock(sizes, say):
    say("stock Slurm")
    with up(STOCK, plugin=False) as cluster:
        submitted = submit_all(cluster, sizes, lambda nodes: "-p basic --requeue", say)
        placing = place_all(cluster, len(sizes), say)
        return statistics.median(submitted), placing, gang(cluster, say)


def ours(sizes, say):
    say("with the plugins and the planner")
    with up(OURS, plugstack="required spank_singularity.so\n", singularity_yaml=YAML) as cluster:
        submitted = submit_all(cluster, sizes, lambda nodes: f"-p basic --singularity-elastic={nodes * GPUS}-{nodes * GPUS}", say)
        placing = place_all(cluster, len(sizes), say)
        # What the node agents write when the ranks of a job have begun; here there are none.
        jobs = cluster.slurm("squeue", "-h", "-t", "R,CF", "-o", "%i %D", timeout=PATIENCE).splitlines()
        words = "".join(f"scontrol update JobId={job} AdminComment='singularity: elastic={gpus}-{gpus} ranks={gpus}'\n"
                        for job, gpus in ((line.split()[0], int(line.split()[1]) * GPUS) for line in jobs))
        cluster.controller.run(["sh", "-s"], stdin="set -e\n" + words, timeout=PATIENCE)
        cluster.start_daemon("ctl", PLANNER)
        metrics = Metrics(cluster)
        wait_for(lambda: metrics.look() or metrics.largest.get("looks_total", 0) >= 2, 120, "the planner to have looked twice", interval=1)
        watching = threading.Event()

        def watch():
            while not watching.wait(0.5):
                metrics.look()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            took = gang(cluster, say)
            time.sleep(15)  # what the planner tells of it
        finally:
            watching.set()
            watcher.join()
        say(cluster.slurm("tail", "-n", "20", f"/var/log/{PLANNER}.log"))
        return statistics.median(submitted), placing, took, metrics.largest


def run(say):
    sizes = trace_sizes()
    say(f"{len(sizes)} jobs on {sum(sizes)} nodes")
    stock_submit, stock_placing, (stock_gang, stock_cycle, stock_answer) = stock(sizes, say)
    our_submit, placing, (our_gang, cycle, answer), planner = ours(sizes, say)
    return {
        "cycle_ratio": placing / stock_placing,
        "submit_ratio": our_submit / stock_submit,
        "stock_place_ms": stock_placing / len(sizes) * 1000,
        "stock_gang_s": stock_gang,
        "gang_preempt_s": our_gang,
        "stock_longest_cycle_s": stock_cycle,
        "longest_cycle_s": cycle,
        "stock_longest_answer_s": stock_answer,
        "longest_answer_s": answer,
        "plan_ms_100k": planner["planning_seconds"] * 1000,
        "plan_issued_s": planner["acting_seconds"],
        "plan_moves": planner['actions_total{kind="yield"}'] + planner['actions_total{kind="shrink"}'] + planner['actions_total{kind="migrate"}'],
    }
