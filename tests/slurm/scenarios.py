# SPDX-License-Identifier: GPL-2.0-or-later
"""What users and administrators do with Slurm, each as a function from a cluster to what came of it.

An outcome holds only what two clusters in the same state must agree on (no times, no process numbers). Each scenario
leaves the cluster idle.
"""

import contextlib
import re

from virtualcluster.errors import ClusterError, wait_for

CONF = {
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "PriorityWeightPartition": "1000",
    "PriorityWeightJobSize": "1000",
    # A requeued job may start again after this many seconds and one, instead of two minutes.
    # Not less than a busy machine may need to start a job.
    "AuthInfo": "cred_expire=10",
}
PARTITIONS = [
    "PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PriorityJobFactor=1 MaxTime=INFINITE State=UP",
    "PartitionName=high Nodes=ALL PriorityTier=10 PriorityJobFactor=10 MaxTime=INFINITE State=UP",
]

# A job that waits for the test, and ends by itself should the test die.
WAIT = "for i in $(seq 1200); do [ -e /shared/go-$SLURM_JOB_ID ] && exit 0; sleep 0.1; done; exit 9"


def go(cluster, job):
    cluster.controller.run(["touch", f"/shared/go-{job}"])


def wait_started(cluster, name):
    """Until the job's script has written to /shared/NAME: Slurm says RUNNING earlier."""
    wait_for(lambda: cluster.controller.run(["cat", f"/shared/{name}"], check=False).stdout, 20, f"a script to write {name}")


def result(cluster, job):
    """What Slurm says of a job, without what differs from run to run."""
    record = cluster.job(job)
    keys = ("JobState", "Reason", "ExitCode", "Restarts", "Partition", "NodeList", "NumNodes", "NumCPUs", "NumTasks",
            "AllocTRES", "TRES", "Requeue", "Priority")
    return {key: record[key] for key in keys if key in record}


def output(cluster, name):
    return sorted(cluster.controller.run(["cat", f"/shared/{name}"]).stdout.split("\n"))


def finish(cluster, job, states=("COMPLETED",), seconds=60):
    cluster.wait_job(job, states, seconds)
    return result(cluster, job)


def finish_anywhere(cluster, job):
    """Of a job that waited for others to end: where it ran is a question of which node was free first."""
    return {key: value for key, value in finish(cluster, job).items() if key != "NodeList"}


def batch(cluster):
    job = cluster.submit("-N2", "--ntasks=4", "-o", "batch.out", "--wrap=echo script on $(hostname); srun -l hostname")
    return finish(cluster, job), output(cluster, "batch.out")


def failing_batch(cluster):
    return finish(cluster, cluster.submit("--wrap=exit 3"), ("FAILED",))


def time_limit_and_cancel(cluster):
    running = cluster.submit(f"--wrap=echo start > /shared/cancelled; {WAIT}")
    pending = cluster.submit("--hold", "--wrap=true")
    wait_started(cluster, "cancelled")
    cluster.slurm("scancel", str(running), str(pending), user="alice")
    return finish(cluster, running, ("CANCELLED",)), finish(cluster, pending, ("CANCELLED",))


def interactive_srun(cluster):
    line = ["srun", "-N2", "--ntasks-per-node=2", "--gpus-per-task=1", "-l", "sh", "-c", "echo $(hostname) $CUDA_VISIBLE_DEVICES"]
    return sorted(cluster.slurm(*line, user="alice").split("\n"))


def array(cluster):
    job = cluster.submit("--array=0-3%2", "-o", "array-%a.out", "--wrap=echo task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT")
    return [(finish_anywhere(cluster, f"{job}_{i}"), output(cluster, f"array-{i}.out")) for i in range(4)]


def heterogeneous(cluster):
    script = "#!/bin/bash\n#SBATCH -n1 --gpus=1\n#SBATCH hetjob\n#SBATCH -n2 --gpus=2\nsrun --het-group=0,1 -l sh -c 'echo $SLURM_JOB_NUM_NODES $SLURM_GPUS_ON_NODE'\n"
    job = cluster.submit("-o", "het.out", script=script)
    return finish(cluster, f"{job}+0"), finish(cluster, f"{job}+1"), output(cluster, "het.out")


def gpus(cluster):
    """Three jobs of 3 GPUs on two nodes of 4: two run, the third waits for one of them."""
    jobs = [cluster.submit("--gpus-per-node=3", "-N1", f"--wrap=echo on $CUDA_VISIBLE_DEVICES > /shared/gpus-{i}; {WAIT}") for i in range(3)]
    for i in range(2):
        wait_started(cluster, f"gpus-{i}")
    wait_for(lambda: cluster.job(jobs[2])["Reason"] == "Resources", 20, "the third job to wait for resources")
    nodes = [re.search(r"AllocTRES=(\S*)", cluster.slurm("scontrol", "-o", "show", "node", node)).group(1) for node in ("n1", "n2")]
    for job in jobs:
        go(cluster, job)
    outcome = [finish(cluster, jobs[0]), finish(cluster, jobs[1]), finish_anywhere(cluster, jobs[2])]
    return nodes, outcome, [output(cluster, f"gpus-{i}") for i in range(3)]


def preempted(cluster):
    """A job of the high partition takes all GPUs; the low one is requeued and runs again."""
    low = cluster.submit("-N2", "--gpus-per-node=4", "--requeue", f"--wrap=echo start >> /shared/low; {WAIT}")
    wait_started(cluster, "low")
    high = cluster.submit("-N2", "--gpus-per-node=4", "-p", "high", f"--wrap={WAIT}")
    cluster.wait_job(high, ("RUNNING",))
    state = cluster.job(low)["JobState"]
    go(cluster, high)
    go(cluster, low)
    return state, finish(cluster, high), finish(cluster, low), output(cluster, "low")


def requeued(cluster):
    job = cluster.submit("--requeue", f"--wrap=echo start >> /shared/requeued; {WAIT}")
    wait_started(cluster, "requeued")
    cluster.slurm("scontrol", "requeue", str(job), user="alice")
    wait_for(lambda: cluster.job(job)["Restarts"] == "1", 20, f"job {job} to be requeued")
    go(cluster, job)
    return finish(cluster, job), output(cluster, "requeued")


def bad_options(cluster):
    """Refused at submission, or accepted to wait for nodes that will never be; the words are Slurm's."""
    found = []
    for options in (["--gpus=99"], ["-N99"], ["-p", "nowhere"], ["--gpus-per-node=-1"], ["--mem=1T"], ["--no-such-option"]):
        answer = cluster.controller.run(["sbatch", *options, "--wrap=true"], user="alice", check=False)
        number = re.search(r"Submitted batch job (\d+)", answer.stdout)
        if number:  # accepted, and would wait for ever
            cluster.slurm("scancel", number.group(1))
        found.append((options, answer.returncode, answer.stderr))
    return found


def priorities(cluster):
    """What sprio and squeue say of waiting jobs."""
    blocker = cluster.submit("-N2", "--exclusive", f"--wrap={WAIT}", "-p", "high")
    cluster.wait_job(blocker, ("RUNNING",))
    small, large = cluster.submit("-n1", "--wrap=true"), cluster.submit("-N2", "--nice=50", "--wrap=true")
    rows = wait_for(lambda: cluster.slurm("sprio", "-h", "-o", "%i %Y %A %F %J %P %N") if len(
        cluster.slurm("sprio", "-h", "-o", "%i").split()) == 2 else None, 20, "sprio to list both jobs")
    go(cluster, blocker)
    outcome = [finish(cluster, blocker), finish_anywhere(cluster, small), finish(cluster, large)]
    first = min(small, large)
    return [[str(int(row.split()[0]) - first), *row.split()[1:]] for row in sorted(rows.split("\n"))], outcome


def reconfigure(cluster):
    """A running and a waiting job live through `scontrol reconfigure`."""
    return _through(cluster, lambda: (cluster.slurm("scontrol", "reconfigure"), cluster.wait_controller()))


def controller_restart(cluster):
    """... and through an end and a start of slurmctld."""

    def restart():
        cluster.stop_daemon("ctl", "slurmctld")
        cluster.start_daemon("ctl", "slurmctld")
        cluster.wait_controller()

    return _through(cluster, restart)


def _through(cluster, event):
    running = cluster.submit("-N2", "--gpus-per-node=4", f"--wrap={WAIT}")
    waiting = cluster.submit("-N1", "--gpus-per-node=2", "--wrap=echo $CUDA_VISIBLE_DEVICES")
    cluster.wait_job(running, ("RUNNING",))
    cluster.wait_job(waiting, ("PENDING",))
    event()
    cluster.wait_nodes()
    states = cluster.job(running)["JobState"], cluster.job(waiting)["JobState"]
    go(cluster, running)
    return states, finish(cluster, running), finish_anywhere(cluster, waiting)


def node_down_and_up(cluster):
    """slurmd dies with a job on it; the job is requeued elsewhere; the node comes back."""
    job = cluster.submit("-N1", "--nodelist=n2", "--no-requeue", f"--wrap=echo began > /shared/down-$SLURM_JOB_ID; {WAIT}")
    wait_started(cluster, f"down-{job}")
    cluster.kill("n2")
    cluster.slurm("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
    lost = finish(cluster, job, ("NODE_FAIL",), 120)  # slurmctld may first wait for the node's answer
    other = cluster.slurm("srun", "hostname", user="alice")
    cluster.boot("n2")
    cluster.wait_nodes(states=("idle",))
    return lost, other, cluster.slurm("srun", "-w", "n2", "hostname", user="alice")


def reservation(cluster):
    with contextlib.suppress(ClusterError):
        cluster.slurm("scontrol", "delete", "reservation=maint")
    cluster.slurm("scontrol", "create", "reservation=maint", "users=bob", "nodes=n1", "starttime=now", "duration=60")
    try:
        outside = cluster.slurm("srun", "-N1", "hostname", user="alice")
        inside = cluster.slurm("srun", "-N1", "--reservation=maint", "hostname", user="bob")
    finally:
        cluster.slurm("scontrol", "delete", "reservation=maint")
    return outside, inside


ALL = [batch, failing_batch, time_limit_and_cancel, interactive_srun, array, heterogeneous, gpus, preempted, requeued,
       bad_options, priorities, reservation, reconfigure, controller_restart, node_down_and_up]
