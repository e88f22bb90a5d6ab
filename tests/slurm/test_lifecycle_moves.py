# SPDX-License-Identifier: GPL-2.0-or-later
"""Elastic jobs that are moved and resized on demand: by singularityctl, by their comment, and from nodes that are drained."""

import re
import shlex

import pytest
from conftest import elastic_up
from elastic import PATIENCE, TIME_TO_SAVE, assert_clean
from test_lifecycle import counted, output, requeue, script, wait_counted
from virtualcluster.errors import wait_for

SOON = "elastic:\n  look_every: 1s\n"
RANKS = 4
# Until it is told to end. Whoever counts twice, or not at all, is seen.
COUNT = """
import itertools, os, time
rank, job = os.environ["SLURM_PROCID"], os.environ["SLURM_JOB_ID"]
for number in itertools.count():
    print("rank", rank, number, flush=True)
    time.sleep(0.05)
    if os.path.exists(f"/shared/end-{job}"):
        break
"""


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, SOON, nodes=2, conf=TIME_TO_SAVE) as made:
        yield made
        assert_clean(made)


def submit(cluster, *options, elastic="1-4"):
    program = f"srun /usr/bin/python3 -c {shlex.quote(COUNT)}"
    return cluster.submit(f"--singularity-elastic={elastic}", f"--ntasks={RANKS}", *options, script=script(program))


def ctl(cluster, *words, user="alice"):
    return cluster.controller.run(["singularityctl", *map(str, words)], user=user, check=False)


def comment(cluster, job, text, user="alice"):
    return cluster.controller.run(["scontrol", "update", f"JobId={job}", f"Comment={text}"], user=user, check=False)


def wait_runs(cluster, job, runs, more=10):
    """In its run of this number, and counting."""
    wait_for(lambda: cluster.job(job)["Restarts"] == str(runs - 1) and cluster.job(job)["JobState"] == "RUNNING", PATIENCE, f"run {runs} of job {job}")
    number = max(one[-1] for one in counted(cluster, job).values())
    wait_counted(cluster, job, number + more, RANKS)
    return cluster.job(job)


def wait_gpus(cluster, job, runs, gpus):
    wait_runs(cluster, job, runs)
    assert f"\n{'GPUs:':<13} {gpus}\n" in ctl(cluster, "status", job).stdout


def commented(cluster, job):
    return cluster.slurm("squeue", "-h", "-j", str(job), "-o", "%k").strip()


def wait_answered(cluster, job, words):
    wait_for(lambda: words in commented(cluster, job), PATIENCE, f"job {job}'s comment to say '{words}'")


def end(cluster, job):
    cluster.controller.run(["touch", f"/shared/end-{job}"])
    cluster.wait_job(job, seconds=PATIENCE)
    shown = counted(cluster, job)
    assert len(shown) == RANKS and all(one == list(range(len(one))) for one in shown.values()), shown


def test_jobs_leave_drained_nodes(cluster):
    """By themselves; those on other nodes stay."""
    leaves, stays = submit(cluster, "-wn1"), submit(cluster, "-wn2")
    for job in leaves, stays:
        cluster.slurm("scontrol", "update", f"JobId={job}", "Comment=mine")
        wait_counted(cluster, job, 10, RANKS)
    try:
        cluster.slurm("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=repair of a fan")
        # It asked for n1, and waits for it.
        wait_for(lambda: cluster.job(leaves)["JobState"] == "PENDING", PATIENCE, "n1 to be left")
        cluster.slurm("scontrol", "update", f"JobId={leaves}", "ReqNodeList=")
        assert wait_runs(cluster, leaves, 2)["NodeList"] == "n2"
    finally:
        cluster.slurm("scontrol", "update", "NodeName=n1", "State=RESUME")
    end(cluster, leaves)
    end(cluster, stays)
    assert cluster.job(stays)["Restarts"] == "0" and cluster.job(stays)["Comment"] == "mine"


@pytest.mark.parametrize("move", [
    lambda cluster, job, *to: comment(cluster, job, "singularity:migrate" + "".join(f"={node}" for node in to)),
    lambda cluster, job, *to: ctl(cluster, "migrate", job, *(f"--to={node}" for node in to)),
], ids=["comment", "command"])
def test_jobs_are_moved(cluster, move):
    """Elsewhere, and to a node that is named. It holds for that run: what the user had asked for is there again."""
    job = submit(cluster, "-N1")
    wait_counted(cluster, job, 10, RANKS)
    first = cluster.job(job)["NodeList"]
    other = {"n1": "n2", "n2": "n1"}[first]
    assert move(cluster, job).returncode == 0
    now = wait_runs(cluster, job, 2)
    assert (now["NodeList"], now["ExcNodeList"], now.get("Comment", "")) == (other, first, "")
    assert move(cluster, job, first).returncode == 0
    now = wait_runs(cluster, job, 3)
    assert (now["NodeList"], now["ExcNodeList"], now["ReqNodeList"]) == (first, "(null)", first)
    requeue(cluster, job)
    assert wait_runs(cluster, job, 4)["ReqNodeList"] == "(null)"
    end(cluster, job)


@pytest.mark.parametrize("options, elastic", [(["--gpus=4"], "1-4"), (["-N2", "--gpus-per-node=2"], "2-4"), (["--gpus-per-task=1"], "1-4"),
                                              (["--gpus=4", "--overcommit"], "1-4")])
def test_jobs_are_resized(cluster, options, elastic):
    """By command, while it runs and while it waits, and by comment."""
    job = submit(cluster, *options, elastic=elastic)
    wait_counted(cluster, job, 10, RANKS)
    done = ctl(cluster, "resize", job, "--gpus=2")
    assert done.stdout == f"job {job} is saved, and goes on with 2 GPUs\n", done.stderr
    wait_gpus(cluster, job, 2, 2)
    assert comment(cluster, job, "singularity:resize=4").returncode == 0
    wait_gpus(cluster, job, 3, 4)
    cluster.slurm("scontrol", "requeuehold", str(job))
    wait_for(lambda: cluster.job(job)["JobState"] == "PENDING" and "gone" not in cluster.job(job)["Reason"], PATIENCE, "the job to wait")
    wait_for(lambda: ctl(cluster, "resize", job, "--gpus=2").returncode == 0, PATIENCE, "the job to be resized")
    cluster.slurm("scontrol", "release", str(job))
    wait_gpus(cluster, job, 4, 2)
    refused = ctl(cluster, "resize", job, "--gpus=5")
    assert refused.returncode == 1 and f"--singularity-elastic={elastic}" in refused.stderr
    # By its last checkpoint, what its ranks have on devices would not fit into memory of its hosts.
    cluster.slurm("scontrol", "update", f"JobId={job}", f"AdminComment=singularity: elastic=1-4 ranks={RANKS} memory=4000000:1100000:10")
    refused = ctl(cluster, "resize", job, "--gpus=1")
    assert refused.returncode == 1 and "3906.2 GiB on devices of 1074.2 GiB each" in refused.stderr, refused.stderr
    end(cluster, job)


def test_jobs_are_saved_on_demand(cluster):
    """And say so to whoever asks."""
    job = submit(cluster, "-N2", "--gpus=4")
    wait_counted(cluster, job, 10, RANKS)
    saved = ctl(cluster, "checkpoint", job)
    assert re.fullmatch(r"saved as \S+\n", saved.stdout), saved
    assert comment(cluster, job, "singularity:checkpoint").returncode == 0
    wait_answered(cluster, job, "singularity: saved as")

    def line():
        shown = ctl(cluster, "status").stdout.splitlines()
        return dict(zip(shown[0].split(), next(one for one in shown if one.startswith(f"{job} ")).split())) if shown else {}

    wait_for(lambda: line().get("CHECKPOINTS") == "2", PATIENCE, "both checkpoints to be told of")
    shown = line()
    assert {key: shown[key] for key in ("USER", "STATE", "GPUS", "MIN-MAX", "RANKS", "RUNS")} == {
        "USER": "alice", "STATE": "RUNNING", "GPUS": "4", "MIN-MAX": "1-4", "RANKS": "4", "RUNS": "1"}
    assert re.search(r"^checkpoints: +2, the last \S+ ago$", ctl(cluster, "status", job).stdout, re.MULTILINE)
    assert cluster.job(job)["Restarts"] == "0"
    end(cluster, job)


def test_a_run_that_slurmctld_has_forgotten_is_no_loss(cluster):
    """Its state is that from before the job began: it runs it for the first time, again."""
    job = cluster.submit("--singularity-elastic", "-N2", f"--ntasks={RANKS}", "--gpus=4", "--hold",
                         script=script("echo begun", f"srun --export=NONE /usr/bin/python3 -c {shlex.quote(COUNT)}"))
    state = "/var/lib/slurm/slurmctld"
    cluster.stop_daemon("ctl", "slurmctld")  # which writes down what it knows
    cluster.controller.run(["cp", "-a", state, "/root/before"])
    cluster.start_daemon("ctl", "slurmctld")
    cluster.wait_controller()
    cluster.slurm("scontrol", "release", str(job))
    wait_counted(cluster, job, 10, RANKS)
    wait_for(lambda: ctl(cluster, "checkpoint", job).returncode == 0, PATIENCE, "the job to be saved")
    cluster.stop_daemon("ctl", "slurmctld", "KILL")
    cluster.controller.run(f"rm -r {state} && mv /root/before {state}")
    cluster.start_daemon("ctl", "slurmctld")
    cluster.wait_controller()
    assert cluster.job(job)["JobState"] == "PENDING"
    cluster.wait_nodes()
    cluster.slurm("scontrol", "release", str(job))
    # The ranks of the forgotten run count on until their nodes have heard of it.
    wait_for(lambda: output(cluster, job).count("begun") == 2, PATIENCE, "the second first run")
    before = max(one[-1] for one in counted(cluster, job).values())
    wait_counted(cluster, job, before + 10, RANKS)
    assert (cluster.job(job)["Restarts"], output(cluster, job).count("begun")) == ("0", 2), output(cluster, job)
    cluster.controller.run(["touch", f"/shared/end-{job}"])
    cluster.wait_job(job, seconds=PATIENCE)
    for rank, numbers in counted(cluster, job).items():
        assert numbers.count(0) == 1 and all(following <= number + 1 for number, following in zip(numbers, numbers[1:])), (rank, numbers)


def test_others_cannot_move_jobs(cluster):
    job = submit(cluster, "-N1", "--gpus=4")
    wait_counted(cluster, job, 10, RANKS)
    for words in (["migrate"], ["resize", "--gpus=2"], ["checkpoint"]):
        refused = ctl(cluster, words[0], job, *words[1:], user="bob")
        assert refused.returncode == 1 and "only its user and operators may" in refused.stderr, refused
    assert comment(cluster, job, "singularity:migrate", user="bob").returncode != 0
    assert ctl(cluster, "checkpoint", job, user="root").returncode == 0
    assert cluster.job(job)["Restarts"] == "0"
    end(cluster, job)


@pytest.mark.parametrize("text, answer", [
    ("singularity:explode", "asks for nothing that there is"),
    ("singularity:migrate=n1;reboot", "names no node"),
    ("singularity:migrate=n99", "there is no node n99"),
    ("singularity:resize=9", "--singularity-elastic=1-4"),
    ("singularity:resize=4", "it has 4 GPUs already"),
    ("singularity:resize=4000000000", "no number of GPUs"),
])
def test_comments_that_cannot_be_done_are_answered(cluster, nobody_disturbs, text, answer):
    job = nobody_disturbs
    assert comment(cluster, job, text).returncode == 0
    wait_answered(cluster, job, answer)
    assert commented(cluster, job).startswith("singularity: ")


@pytest.fixture(scope="module")
def nobody_disturbs(cluster):
    job = submit(cluster, "-N1", "--gpus=4")
    wait_counted(cluster, job, 10, RANKS)
    yield job
    assert cluster.job(job)["Restarts"] == "0"
    end(cluster, job)


def test_agents_that_die_move_jobs_later(cluster):
    """The comment stays until it has been seen to."""
    job = submit(cluster, "-N1")
    wait_counted(cluster, job, 10, RANKS)
    node = cluster.job(job)["NodeList"]
    cluster.stop_daemon(node, "singularityd", "KILL")
    comment(cluster, job, "singularity:migrate")
    cluster.start_agents(node)
    assert wait_runs(cluster, job, 2)["NodeList"] != node
    end(cluster, job)


def test_what_is_no_elastic_job_is_left_alone(cluster):
    job = cluster.submit("-N1", "--requeue", script=script("srun sleep 600"))
    cluster.wait_job(job, ("RUNNING",))
    refused = ctl(cluster, "migrate", job)
    assert refused.returncode == 1 and "--singularity-elastic" in refused.stderr
    assert "slurmctld does not know it" in ctl(cluster, "status", 999999).stderr
    assert "elastic step" in ctl(cluster, "status", job).stdout
    cluster.slurm("scancel", str(job))


PEEK = """
import ctypes, errno, os, sys
ATTACH = 16
libc = ctypes.CDLL(None, use_errno=True)
seen = {}
def attempt(what, act):
    try:
        act()
        seen[what] = "done"
    except OSError as error:
        seen[what] = errno.errorcode[error.errno]
def attach(pid):
    if libc.ptrace(ATTACH, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        theirs = os.stat(f"/proc/{pid}").st_uid == int(sys.argv[1]) and b"itertools.count" in open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError:
        continue
    if not theirs:
        continue
    for name in ("environ", "mem", "maps"):
        attempt(name, lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
    attempt("cwd", lambda: os.readlink(f"/proc/{pid}/cwd"))
    attempt("root", lambda: os.listdir(f"/proc/{pid}/root/"))
    attempt("descriptors", lambda: os.listdir(f"/proc/{pid}/fd"))
    attempt("namespace", lambda: os.open(f"/proc/{pid}/ns/net", os.O_RDONLY))
    attempt("kill", lambda: os.kill(int(pid), 9))
    attempt("ptrace", lambda: attach(int(pid)))
for name, code in sorted(seen.items()):
    print(name, code)
"""
PLACES = "/run/singularity /var/lib/singularity /dev/shm /shared/store"


def test_others_get_at_nothing_of_a_job(cluster):
    """Not by the agent, the store, its processes, its files or its network."""
    job = cluster.submit("--singularity-elastic", "-N1", f"--ntasks={RANKS}", "--gpus=2",
                         script=script("srun -n1 hostname -I", f"srun /usr/bin/python3 -c {shlex.quote(COUNT)}"))
    wait_counted(cluster, job, 10, RANKS)
    node = cluster.host(cluster.job(job)["NodeList"])
    assert ctl(cluster, "checkpoint", job).returncode == 0
    name = f"u1001-s{job}-1"
    assert name in node.run(["singularityctl", "ps"], user="alice").stdout
    assert name not in node.run(["singularityctl", "ps"], user="bob").stdout
    for words in (["logs", name], ["kill", name], ["destroy", name], ["checkpoint", "--continue", name], ["checkpoint", f"{name}-0"],
                  ["restore", "--detach", name], ["logs", f"{name}-0"], ["kill", f"{name}-0"], ["destroy", f"{name}-0"]):
        refused = node.run(["singularityctl", *words], user="bob", check=False)
        assert refused.returncode == 1 and re.search("belongs to another user|the store has none|of another user", refused.stderr), (words, refused)
    for user in ("alice", "bob"):
        assert node.run(["ls", "/shared/store"], user=user, check=False).returncode == 2, user
        assert node.run(["singularityctl", "store", "ls"], user=user, check=False).returncode == 1, user
    peeked = dict(line.split() for line in node.run(["python3", "-c", PEEK, "1001"], user="bob").stdout.splitlines())
    assert len(peeked) == 9 and set(peeked.values()) <= {"EACCES", "EPERM"}, peeked
    found = node.run(["sh", "-c", f"find {PLACES} ! -type d \\( -readable -o -writable \\) 2>/dev/null"], user="bob", check=False).stdout.split()
    assert found == ["/run/singularity/agent.sock"], found
    address = re.search(r"^10\.\d+\.\d+\.\d+", output(cluster, job), re.MULTILINE).group()
    assert node.run(["ping", "-c", "1", "-W", "1", address], user="root", check=False).returncode != 0
    end(cluster, job)
