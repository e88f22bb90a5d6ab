# SPDX-License-Identifier: GPL-2.0-or-later
"""Elastic jobs on a virtual cluster with Slurm 24.11: how long one that is requeued stands still, and what being elastic costs one
that nobody disturbs."""

import datetime
import glob
import os
import re
import shlex
import statistics
import time

import proxied
from virtualcluster import Cluster
from virtualcluster.errors import wait_for

CONF = {
    "SelectType": "select/cons_tres_singularity",
    "PriorityType": "priority/singularity",
    "JobSubmitPlugins": "singularity",
    "AuthInfo": "cred_expire=5",  # as in slurm-conf/slurm.conf.fragment
}
YAML = ("log_level: debug\nelastic:\n  checkpoint_every_least: 1s\n"
        "agents:\n  address: 0.0.0.0\n  patience: 30s\n  metrics: /run/singularity.prom\nstore:\n  directory: /shared/store\n")
ELASTIC = "--singularity-elastic"
PATIENCE = 300  # seconds, for what takes one
DATA = os.path.join(os.path.abspath(proxied.TOP), "tests", "workloads", "data")

REQUEUES = 5
STEPS = 100000  # of the job that is requeued, which is cancelled at last
ROUNDS = 9
LENGTH = 15  # seconds that a training takes, about
STEPS_OF_EPOCH = 30  # of train_digits: 1,500 images, 50 for each
FEW = (16, 144)  # epochs, by which that is found out
# It computes on one thread: a real one takes no processor from the program and its device proxy.
GPU = {"SINGULARITY_SOFTGPU_THREADS": "1"}
OFTEN = 4  # seconds between checkpoints, in place of
EVERY = 30
QUIET = 120  # seconds in which agents are watched that have nothing to do: two of their looks at the node

# Of a requeue, in this order; a part ends with the first line of the agents' logs that has these words, behind that of the part before.
PARTS = (
    ("told_s", "until the agent knows that Slurm runs it again", "Slurm runs its job again later: it is saved"),
    ("barrier_s", "room is made for images, and all ranks stop between two collectives", "processes stopped between collectives"),
    ("device_image_s", "device memory is copied", ": saving processes"),
    ("host_image_s", "processes are dumped", ": storing"),
    ("store_s", "all of it goes to the store", ": saved in "),
    ("slurm_s", "Slurm ends the job, and starts it again", ": what was saved of it is looked for"),
    ("restore_s", "until all ranks run", ": restored from "),
)
NEEDS = ("programs", "workload_train_data", "workload_train_digits")
FIGURES = {
    "resume_s": f"from `scontrol requeue` to the next step of 8 ranks on 2 nodes, seconds, median of {REQUEUES} (aim 10)",
    **{key: f"part of it: {text}, seconds, median" for key, text, _ in PARTS},
    "first_step_s": "part of it: until the next step is in the job's output, seconds, median",
    "idle_overhead_ratio": f"a training of {LENGTH} s with the plugin and no checkpoint over one with --singularity-off, median of {ROUNDS} (aim 1.02)",
    "step_us": "what one of its steps takes with --singularity-off, us, median",
    "step_cost_us": "how much longer a step takes with the plugin, us, median",
    "wakeup_us": "for comparison: a byte by pipe to a process that sleeps on another processor, one way, us, median",
    "periodic_overhead_ratio": f"with a checkpoint every {EVERY} s over none (aim 1.05): 1 + cost of one / {EVERY} s, measured with one every {OFTEN} s, "
                               f"median of {ROUNDS}",
    "checkpoint_cost_s": "how much longer that training takes for each checkpoint, seconds, median",
    "agent_rss_mb": "resident memory of the node agent and its children, after all of this, MB, the larger of 2 nodes (aim 50)",
    "agent_idle_cpu_percent": f"of one processor, in {QUIET} s without jobs, percent, the larger of 2 nodes (aim 0.1)",
}


def up():
    made = Cluster.up(owner=os.getpid(), nodes=2, plugstack="required spank_singularity.so\n", conf=CONF, singularity_yaml=YAML)
    made.start_agents(env=GPU)
    return made


def output(cluster, job):
    try:
        with open(os.path.join(cluster.directory, "shared", f"slurm-{job}.out"), encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


# -- requeue -------------------------------------------------------------------------------------------------------------------

def log_files(cluster):
    return [host.upper + "/var/log/singularityd.log" for host in cluster.nodes]


def sizes(cluster):
    return {path: os.path.getsize(path) for path in log_files(cluster)}


def lines_since(before):
    """[(seconds since 1970, line)] of all logs, behind where they were."""
    out = []
    for path, size in before.items():
        with open(path, encoding="utf-8", errors="replace") as file:
            file.seek(size)
            for line in file:
                stamp = line.split(" ", 1)[0]
                try:
                    out.append((datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp(), line.rstrip("\n")))
                except ValueError:
                    continue  # the rest of a line, or its beginning
    return sorted(out)


def parts_of(lines, began):
    """{part: seconds}, and when the last of them ended; an error if one is missing."""
    out, at = {}, began
    for key, text, words in PARTS:
        ended = next((when for when, line in lines if when >= at and words in line), None)
        if ended is None:
            raise RuntimeError(f"the agents' logs have no '{words}' ({text}) behind {at - began:.1f} s of a requeue:\n"
                               + "\n".join(line for _, line in lines))
        out[key] = ended - at
        at = ended
    return out, at


def steps(cluster, job):
    """How many it has done; an error if it does no more."""
    text = output(cluster, job)
    if "srun: error: " in text:
        raise RuntimeError(f"job {job} has failed: {text[-2000:]}")
    return len(re.findall(r"^step \d+ loss", text, re.MULTILINE))


def requeued(cluster, job):
    """The figures of one requeue."""
    least = steps(cluster, job) + 20
    wait_for(lambda: steps(cluster, job) >= least, PATIENCE, "the training to go on")
    before = sizes(cluster)
    began = time.time()
    cluster.slurm("scontrol", "requeue", str(job))
    last = PARTS[-1][2]
    wait_for(lambda: any(last in line for _, line in lines_since(before)), PATIENCE, "the job to be restored")
    done = steps(cluster, job)
    wait_for(lambda: steps(cluster, job) > done, PATIENCE, "its next step")
    ended = time.time()
    parts, restored = parts_of(lines_since(before), began)
    return {**parts, "first_step_s": ended - restored, "resume_s": ended - began}


def resume(cluster, say):
    script = ("#!/bin/bash\nexport MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
              f"srun --ntasks=8 env WORKLOADS_DATA={DATA} {os.path.abspath(proxied.program('workloads', 'train_data'))} {STEPS}\n")
    job = cluster.submit(ELASTIC, "--gpus=8", "--ntasks=8", "-N2", "--singularity-checkpoint-every=0", script=script)
    taken = []
    for index in range(REQUEUES):
        say(f"requeue {index + 1} of {REQUEUES}")
        taken.append(requeued(cluster, job))
    cluster.slurm("scancel", str(job))
    cluster.wait_job(job, ("CANCELLED",), seconds=PATIENCE)
    return {key: statistics.median(one[key] for one in taken) for key in taken[0]}


# -- overhead ------------------------------------------------------------------------------------------------------------------

def trained(cluster, epochs, *options):
    """Seconds that the program takes, and how often it was saved meanwhile."""
    program = os.path.abspath(proxied.program("workloads", "train_digits"))
    timed = f"begin=$(date +%s%N); {program} {epochs} >/dev/null && echo took $(( $(date +%s%N) - begin ))"
    # With --singularity-off it finds the software GPU, else the device proxy's client is in its place.
    libraries = os.path.abspath(proxied.program("softgpu"))
    variables = " ".join(f"{name}={value}" for name, value in {**GPU, "WORKLOADS_DATA": DATA, "LD_LIBRARY_PATH": libraries}.items())
    script = f"#!/bin/bash\nexport {variables}\nsrun sh -c {shlex.quote(timed)}\n"
    before = sizes(cluster)
    job = cluster.submit("-N1", "-n1", "--gpus=1", "--cpus-per-task=4", *options, script=script)
    cluster.wait_job(job, seconds=PATIENCE)
    took = re.search(r"^took (\d+)$", output(cluster, job), re.MULTILINE)
    if not took:
        raise RuntimeError(f"job {job} does not say how long it took: {output(cluster, job)}")
    return int(took[1]) / 1e9, sum(": saved in " in line for _, line in lines_since(before))


def calibrated(cluster):
    """How many epochs are a training of LENGTH seconds."""
    few, many = (trained(cluster, epochs, "--singularity-off")[0] for epochs in FEW)
    return max(FEW[1], round(LENGTH / (many - few) * (FEW[1] - FEW[0])))


def wakeup_us(rounds=3000):
    (reading, asking), (answers, answering) = os.pipe(), os.pipe()
    processors = os.sched_getaffinity(0)
    child = os.fork()
    if child == 0:
        os.close(asking)
        os.sched_setaffinity(0, {max(processors)})
        while os.read(reading, 1):
            os.write(answering, b".")
        os._exit(0)
    for end in (reading, answering):  # of a child that dies the end is seen
        os.close(end)
    os.sched_setaffinity(0, {min(processors)})
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        os.write(asking, b".")
        os.read(answers, 1)
        took.append(time.perf_counter() - began)
    for end in (asking, answers):
        os.close(end)
    os.waitpid(child, 0)
    os.sched_setaffinity(0, processors)
    return statistics.median(took) / 2 * 1e6


def overheads(cluster, say):
    epochs = calibrated(cluster)
    ratios, costs, alone, more = [], [], [], []
    for index in range(ROUNDS):
        say(f"trainings of {epochs} epochs, round {index + 1} of {ROUNDS}")
        off, _ = trained(cluster, epochs, "--singularity-off")
        plain, none = trained(cluster, epochs, ELASTIC, "--singularity-checkpoint-every=0")
        saved, count = trained(cluster, epochs, ELASTIC, f"--singularity-checkpoint-every=0:{OFTEN:02}")
        if none or not count:
            raise RuntimeError(f"{none} checkpoints of a job that wants none, {count} of one that wants some")
        say(f"{off:.1f} s off, {plain:.1f} s on, {saved:.1f} s with {count} checkpoints")
        ratios.append(plain / off)
        alone.append(off / (epochs * STEPS_OF_EPOCH) * 1e6)
        more.append((plain - off) / (epochs * STEPS_OF_EPOCH) * 1e6)
        costs.append((saved - plain) / count)
    cost = statistics.median(costs)
    return {"idle_overhead_ratio": statistics.median(ratios), "step_us": statistics.median(alone), "step_cost_us": statistics.median(more),
            "wakeup_us": wakeup_us(), "checkpoint_cost_s": cost, "periodic_overhead_ratio": 1 + cost / EVERY}


# -- agents --------------------------------------------------------------------------------------------------------------------

def with_children(root, pid):
    """Of processes in a host's /proc."""
    found = [pid]
    for one in found:
        for path in glob.glob(f"{root}/{one}/task/*/children"):
            with open(path, encoding="ascii") as file:
                found += map(int, file.read().split())
    return found


def processor_seconds(root, pids):
    """Used so far, with children that have ended."""
    ticks = 0
    for pid in pids:
        with open(f"{root}/{pid}/stat", encoding="utf-8") as file:
            ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mb(root, pids):
    kilobytes = 0
    for pid in pids:
        with open(f"{root}/{pid}/status", encoding="utf-8") as file:
            kilobytes += int(re.search(r"^VmRSS:\s+(\d+) kB$", file.read(), re.MULTILINE)[1])
    return kilobytes * 1024 / 1e6


def agents(cluster, say):
    say(f"agents without jobs, for {QUIET} s")
    seen = []
    for host in cluster.nodes:
        root = f"/proc/{host.pid()}/root/proc"
        pids = with_children(root, cluster.daemon_pid(host.name, "singularityd"))
        seen.append((root, pids, processor_seconds(root, pids)))
    began = time.monotonic()
    time.sleep(QUIET)  # what is measured
    passed = time.monotonic() - began
    return {"agent_rss_mb": max(resident_mb(root, pids) for root, pids, _ in seen),
            "agent_idle_cpu_percent": max(100 * (processor_seconds(root, pids) - used) / passed for root, pids, used in seen)}


def run(say):
    cluster = up()
    try:
        return {**resume(cluster, say), **overheads(cluster, say), **agents(cluster, say)}
    finally:
        cluster.down()
