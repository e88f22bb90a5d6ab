# SPDX-License-Identifier: GPL-2.0-or-later
"""singularity-slurm: what it says of jobs in every state that matters, as root on a node and as a user; and what
singularity-planner reads of the topology."""

import pytest
import scenarios
from conftest import up
from virtualcluster.errors import wait_for

PROGRAM = "/usr/lib/singularity/singularity-slurm"
OWNED = ["--owner", "1001"]  # alice's
TOLD = ("JobState", "Reason", "Restarts", "StartTime", "Comment", "AdminComment")
PATIENCE = 60
# Long enough for a test to see what happens within them.
CONF = {"KillWait": "120", "TopologyPlugin": "topology/tree"}
TOPOLOGY = "SwitchName=s1 Nodes=n1\nSwitchName=s2 Nodes=n2\nSwitchName=s0 Switches=s[1-2]\n"
PARTITIONS = [
    "PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=120 MaxTime=INFINITE State=UP",
    "PartitionName=high Nodes=ALL PriorityTier=10 MaxTime=INFINITE State=UP",
]
STUBBORN = f"trap '' TERM; echo start >> /shared/start-$SLURM_JOB_ID; {scenarios.WAIT}"


@pytest.fixture(scope="module")
def cluster(release):
    with up(release, True, CONF, partitions=PARTITIONS, topology=TOPOLOGY) as made:
        yield made


@pytest.fixture(autouse=True)
def none_left(cluster):
    """A node that a job does not let go of takes no other."""
    yield
    cluster.slurm("scancel", "-u", "alice")

    def empty():
        jobs = cluster.slurm("squeue", "-h", "-t", "all", "-o", "%A").split()
        cluster.controller.run(["touch", *(f"/shared/go-{job}" for job in jobs), "/shared/go"])
        return cluster.slurm("squeue", "-h") == ""

    wait_for(empty, PATIENCE, "all jobs to be gone")


def ask(cluster, job, user="root", host="n1"):
    answer = cluster.host(host).run([PROGRAM, "job", *OWNED, str(job)], user=user, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = [line.split("=", 1) for line in answer.stdout.splitlines()]
    assert len(dict(lines)) == len(lines)
    return dict(lines)


def requeue(cluster, job, user="root"):
    return cluster.host("n1").run([PROGRAM, "requeue", *OWNED, str(job)], user=user, check=False)


def submit(cluster, *options, script=STUBBORN):
    return cluster.submit("-N1", "-wn2", *options, f"--wrap={script}")


def started(cluster, job):
    scenarios.wait_started(cluster, f"start-{job}")
    return job


def wait_state(cluster, job, state):
    wait_for(lambda: cluster.slurm("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T") == state, PATIENCE, f"job {job} to be {state}")


def end(cluster, job):
    scenarios.go(cluster, job)
    wait_for(lambda: cluster.slurm("squeue", "-h", "-o", "%A").split().count(str(job)) == 0, PATIENCE, f"job {job} to be gone")


@pytest.mark.parametrize("user", ["root", "alice"])
def test_running(cluster, user):
    job = started(cluster, submit(cluster, "--requeue"))
    assert ask(cluster, job, user) == {
        "job": str(job), "cluster": "virtual", "uid": "1001", "batch": "yes", "may_requeue": "yes", "restarts": "0",
        "batch_host": "n2", "completing": "no", "gpus": "0", "fate": "stays"}
    cluster.slurm("scontrol", "suspend", str(job))
    assert ask(cluster, job)["fate"] == "stays"
    cluster.slurm("scontrol", "resume", str(job))
    end(cluster, job)
    assert ask(cluster, job)["fate"] == "ended"


def test_requeued(cluster):
    """While its nodes hold it, while it waits, and when it runs again."""
    job = started(cluster, submit(cluster, "--requeue"))
    cluster.slurm("scontrol", "requeuehold", str(job))
    wait_state(cluster, job, "COMPLETING")
    held = ask(cluster, job)
    assert (held["fate"], held["completing"]) == ("requeued", "yes")
    scenarios.go(cluster, job)
    wait_state(cluster, job, "PENDING")
    held = ask(cluster, job)
    assert (held["fate"], held["restarts"], held["may_requeue"]) == ("requeued", "1", "yes")
    cluster.slurm("scontrol", "release", str(job))
    cluster.wait_job(job)
    again = ask(cluster, job)
    assert (again["fate"], again["restarts"]) == ("ended", "1")


def test_requeues(cluster):
    job = started(cluster, submit(cluster, "--requeue"))
    answer = requeue(cluster, job)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    asked = ask(cluster, job)
    assert (asked["fate"], asked["restarts"]) == ("requeued", "1")
    assert requeue(cluster, job).returncode == 0, "it is requeued already"
    assert ask(cluster, job)["restarts"] == "1"


def test_what_cannot_be_requeued(cluster):
    job = started(cluster, submit(cluster, "--no-requeue"))
    assert ask(cluster, job)["may_requeue"] == "no"
    refused = requeue(cluster, job)
    assert refused.returncode == 1 and f"cannot requeue job {job}" in refused.stderr and "--requeue" in refused.stderr
    others = requeue(cluster, job, user="bob")
    assert others.returncode == 1 and "only its user and operators may" in others.stderr
    end(cluster, job)


@pytest.mark.parametrize("words", [["requeue"], ["hold", "why"], ["begin"], ["note", "a=b"], ["answer", "words"]])
def test_anothers_job(cluster, words):
    """What is asked on behalf of bob does nothing to alice's job, although root asks."""
    job = submit(cluster, "--requeue", "--hold", "--comment=hers")
    said = [cluster.job(job).get(key) for key in TOLD]
    name, *more = words
    answer = cluster.host("n1").run([PROGRAM, name, "--owner", "1002", str(job), *more], check=False)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert f"cannot change job {job}: it is uid 1001's, and what is asked is on behalf of uid 1002" in answer.stderr
    assert [cluster.job(job).get(key) for key in TOLD] == said


def test_anothers_job_is_unknown(cluster):
    job = submit(cluster, "--requeue", "--hold")
    answer = cluster.host("n1").run([PROGRAM, "job", "--owner", "1002", str(job)])
    assert answer.stdout == f"job={job}\ncluster=virtual\nfate=ended\n"


def refused(cluster, job):
    answer = requeue(cluster, job)
    assert answer.returncode == 1 and f"cannot requeue job {job}: it has ended" in answer.stderr


def test_cancelled(cluster):
    """It ends, and does not come back."""
    job = started(cluster, submit(cluster, "--requeue"))
    cluster.slurm("scancel", str(job), user="alice")
    wait_state(cluster, job, "COMPLETING")
    assert ask(cluster, job)["fate"] == "ended"
    refused(cluster, job)
    end(cluster, job)
    assert ask(cluster, job)["fate"] == "ended"
    refused(cluster, job)
    assert cluster.job(job)["JobState"] == "CANCELLED"


def test_timed_out(cluster):
    job = started(cluster, submit(cluster, "--requeue", "--time=60"))
    cluster.slurm("scontrol", "update", f"JobId={job}", "EndTime=now")
    wait_state(cluster, job, "COMPLETING")
    assert ask(cluster, job)["fate"] == "timeout"
    end(cluster, job)
    ended = ask(cluster, job)
    assert (ended["fate"], ended["completing"]) == ("timeout", "no")


def test_requeued_at_its_time_limit(cluster):
    job = started(cluster, submit(cluster, "--requeue", "--time=60"))
    cluster.slurm("scontrol", "update", f"JobId={job}", "EndTime=now")
    wait_state(cluster, job, "COMPLETING")
    assert requeue(cluster, job).returncode == 0
    assert ask(cluster, job)["fate"] == "requeued"
    end(cluster, job)


def test_preempted(cluster):
    job = started(cluster, submit(cluster, "--requeue", "--exclusive"))
    high = submit(cluster, "--exclusive", "-p", "high", script="true")
    wait_for(lambda: ask(cluster, job)["fate"] == "preempted", PATIENCE, f"job {job} to be preempted: {ask(cluster, job)}")
    # SIGNALING is a flag of a job that runs, which is seen as long as its signal is on its way.
    assert cluster.job(job)["JobState"] in ("RUNNING", "SIGNALING")
    end(cluster, job)
    cluster.wait_job(high)


def test_a_task_of_an_array(cluster):
    job = cluster.submit("-N1", "-wn2", "--array=1-2", f"--wrap={STUBBORN}")
    ids = {}

    def running():
        rows = cluster.slurm("squeue", "-h", "-t", "R", "-j", str(job), "-o", "%K %A").splitlines()
        ids.update(row.split() for row in rows)
        return len(ids) == 2

    wait_for(running, PATIENCE, f"both tasks of array {job} to run")
    for one in ids.values():
        started(cluster, one)
    assert len(set(ids.values())) == 2
    cluster.slurm("scancel", f"{job}_1")
    wait_state(cluster, ids["1"], "COMPLETING")
    fates = {task: ask(cluster, ids[task]) for task in ids}
    assert {task: (fate["job"], fate["fate"]) for task, fate in fates.items()} == {"1": (ids["1"], "ended"), "2": (ids["2"], "stays")}


def test_begins_now(cluster):
    job = submit(cluster, "--begin=now+1hour", script="true")
    for number, status in ((job, 0), (4000000, 1)):
        answer = cluster.host("n1").run([PROGRAM, "begin", *OWNED, str(number)], check=False)
        assert answer.returncode == status, answer.stderr
    cluster.wait_job(job)


def test_a_job_without_a_script(cluster):
    shown = cluster.slurm("salloc", "-N1", "bash", "-c", f"{PROGRAM} job --owner $UID $SLURM_JOB_ID; {PROGRAM} requeue --owner $UID $SLURM_JOB_ID 2>&1; true", user="alice")
    assert "batch=no\n" in shown and "fate=stays\n" in shown and "submit it with sbatch" in shown


def test_unknown(cluster):
    assert ask(cluster, 4000000) == {"job": "4000000", "cluster": "virtual", "fate": "ended"}
    assert requeue(cluster, 4000000).returncode == 1


@pytest.mark.parametrize("words, named", [(["job", *OWNED, "12_3"], "'12_3'"), (["job", *OWNED, "0"], "'0'"),
                                          (["requeue", *OWNED, "-1"], "-1"), (["jobs"], "jobs"),
                                          (["job", *OWNED, "99999999999"], "'99999999999'"), (["job", *OWNED], "JOBID"), (["job", "1"], "--owner"),
                                          (["hold", "1", "why"], "--owner"), (["note", "--owner", "alice", "1", "a=b"], "alice")])
def test_bad_usage(cluster, words, named):
    answer = cluster.host("n1").run([PROGRAM, *words], check=False)
    assert answer.returncode not in (0, 1) and named in answer.stderr and answer.stdout == ""


def test_no_slurmctld(cluster):
    """No answer is no fate."""
    cluster.stop_daemon("ctl", "slurmctld")
    try:
        for command in ("job", "requeue"):
            answer = cluster.host("n1").run([PROGRAM, command, *OWNED, "1"], check=False, timeout=90)
            assert (answer.returncode, answer.stdout) == (1, "") and "singularity-slurm: cannot " in answer.stderr
    finally:
        cluster.start_daemon("ctl", "slurmctld")
        cluster.wait_controller()


def test_a_broken_slurm_conf(cluster):
    answer = cluster.host("n1").run([PROGRAM, "job", *OWNED, "1"], check=False, env={"SLURM_CONF": "/etc/hosts"})
    assert (answer.returncode, answer.stdout) == (1, "") and "/etc/hosts" in answer.stderr


def test_topology(cluster):
    shown = cluster.controller.run(["singularity-planner", "--once", "--dry-run"], user="alice")
    assert "2 nodes under 2 leaf switches, 8 GPUs" in shown.stdout, shown
