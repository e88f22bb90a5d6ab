# SPDX-License-Identifier: GPL-2.0-or-later
"""./dev demo: a two-node cluster with 4 GPUs a node runs an elastic job, and nothing is left behind."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))

import leftovers  # noqa: E402
from virtualcluster import Cluster, ClusterError  # noqa: E402
from virtualcluster.errors import wait_for  # noqa: E402

# What a user writes; the program knows nothing of this project.
SCRIPT = """#!/bin/bash
#SBATCH --ntasks-per-node=4 -o /shared/train.log
srun --gpus-per-task=1 bash -c '
for step in 1 2 3 4 5; do sleep 1; echo "rank $SLURM_PROCID on $(hostname), GPU $CUDA_VISIBLE_DEVICES: step $step of 5"; done'
"""
OPTIONS = ["-N2", "--gpus-per-node=4", "--singularity-elastic=2-8"]
STEPS = 5 * 8


def say(line=""):
    print(line, flush=True)


def bar(done, total, width=40):
    filled = width * done // total
    return f"[{'#' * filled}{'.' * (width - filled)}] {done}/{total}"


def show_plugin(cluster):
    for line in cluster.log("ctl", "slurmctld").split("\n"):
        if "singularity:" in line:
            say(f"   slurmctld: {line.partition('] ')[2]}")


def run_job(cluster):
    job = cluster.submit(*OPTIONS, script=SCRIPT)
    say(f"\n$ sbatch {' '.join(OPTIONS)} train.sh\nSubmitted batch job {job}")
    shown, start = None, time.monotonic()

    def progressed():
        nonlocal shown
        state = cluster.job(job)["JobState"]
        log = cluster.controller.run(["cat", "/shared/train.log"], check=False).stdout
        now = f"   {state:10} {bar(log.count('step'), STEPS)}"
        if now != shown:
            shown = now
            say(f"{now}  {time.monotonic() - start:4.1f} s")
        return state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

    wait_for(progressed, 120, f"job {job} to end", interval=0.5)
    record = cluster.wait_job(job)
    log = cluster.controller.run(["cat", "/shared/train.log"]).stdout
    if log.count("step") != STEPS:
        raise ClusterError(f"the job wrote {log.count('step')} steps, not {STEPS}:\n{log}")
    say(f"   {record['JobState']} on {record['NodeList']}, exit code {record['ExitCode']}")
    return job


def show_nodes(cluster, job):
    """The plugin's own lines in slurmd's log of both nodes; without them the demo has shown nothing."""
    say("\nWhat the SPANK plugin saw, from slurmd's log on each node:")
    for node in cluster.nodes:
        def lines(node=node):
            return [line for line in cluster.log(node.name, "slurmd").split("\n") if f"job {job}: elastic" in line]

        for line in wait_for(lines, 10, f"{node.name}'s log to tell of job {job}"):
            say(f"   {node.name}: {line.partition('] ')[2]}")


def show_refusal(cluster):
    answer = cluster.controller.run(["sbatch", "--singularity-elastic=8-2", "--wrap=true"], user="alice", check=False)
    if answer.returncode == 0:
        raise ClusterError("sbatch accepted --singularity-elastic=8-2")
    say(f"\n$ sbatch --singularity-elastic=8-2 --wrap=true\n{answer.stderr.strip()}")


def main():
    say("A virtual cluster: 2 nodes with 4 GPUs each, real slurmctld, slurmd, munge, cgroups; both plugins in slurm.conf,"
        "\na node agent on each node")
    cluster = Cluster.up(
        progress=lambda line: say(f"   {line}"), owner=os.getpid(), nodes=2, gpus=4,
        plugstack="required spank_singularity.so\n",
        conf={"SelectType": "select/cons_tres_singularity", "PriorityType": "priority/singularity"},
        singularity_yaml="agents:\n  address: 0.0.0.0\n",
    )
    try:
        cluster.start_agents()
        namespaces = leftovers.namespaces_of(cluster)
        job = run_job(cluster)
        show_nodes(cluster, job)
        show_refusal(cluster)
        say("\nWhat the plugins in slurmctld said:")
        show_plugin(cluster)
    finally:
        cluster.down()
    left = leftovers.everything(cluster, namespaces)
    if left:
        raise ClusterError(f"left behind: {left}")
    say("\nThe cluster is down; left behind: no process, mount, namespace, cgroup or file.")


try:
    main()
except ClusterError as error:
    sys.exit(f"demo: {error}")
except KeyboardInterrupt:
    sys.exit("demo: interrupted; its cluster is down")
