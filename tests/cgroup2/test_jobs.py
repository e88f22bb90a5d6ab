# SPDX-License-Identifier: GPL-2.0-or-later
"""Elastic jobs of this project on the unified hierarchy: where their processes are, and what becomes of them."""

import json
import re

import pytest
from conftest import PROGRAMS
from slurm_host import GPUS, NAME, SlurmHost
from virtualcluster.errors import wait_for

ELASTIC = "--singularity-elastic"
PATIENCE = 240  # programs take 25 times as long to start
STEP = r"0::/system\.slice/(?:\w+_)?slurmstepd\.scope/job_(\d+)/step_(\w+)/(user/task_\d+|slurm)"
# Its state is in its memory alone. It counts until it is told to end.
COUNT = """
import itertools, os, sys, time
rank, job = os.environ["SLURM_PROCID"], os.environ["SLURM_JOB_ID"]
ballast = bytearray(b"x") * (int(sys.argv[1]) << 20)
if os.fork() == 0: # a process without a parent in a session of its own
    if os.fork() == 0:
        os.setsid()
        for fd in (0, 1, 2):
            os.dup2(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC), fd)
        os.execv("/usr/bin/sleep", ["sleep", "1000"])
    os._exit(0)
os.wait()
for number in itertools.count():
    print("rank", rank, number, flush=True)
    time.sleep(0.1)
    if os.path.exists(f"/shared/more-{job}"):
        ballast += bytearray(b"x") * (300 << 20)
    if os.path.exists(f"/shared/end-{job}"):
        break
"""
BALLAST_MIB = 16
# {process: its cgroup and the program that its first argument names} of all that are in a job of Slurm's
PROCESSES = """
import json, os
found = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        found[pid] = [open(f"/proc/{pid}/cgroup").read().strip(), os.path.basename(open(f"/proc/{pid}/cmdline").read().split("\\0")[0])]
    except (FileNotFoundError, ProcessLookupError):
        pass
print(json.dumps({pid: one for pid, one in found.items() if "/job_" in one[0]}))
"""


@pytest.fixture(scope="module")
def host():
    with SlurmHost(PROGRAMS) as made:
        made.write_file("/shared/count.py", COUNT)
        made.write_file("/shared/processes.py", PROCESSES)
        yield made
        assert not left(made)


def left(host):
    """What there is of jobs."""
    script = ("ls /run/singularity/nodes /run/singularity/members /run/singularity/jobs | grep -v ^/ | grep .; grep singularity- /proc/mounts; "
              "grep -l -e singularity-net -e singularity-ini -e singularity-tas -e singularity-pro /proc/[0-9]*/comm; "
              "find /sys/fs/cgroup -name 'job_*'")
    return host.run(script, check=False).stdout.split()


@pytest.fixture(autouse=True)
def leaves_nothing(host):
    yield
    wait_for(lambda: not left(host), PATIENCE, "nothing to be left of the job")


def processes(host, job, step):
    """[(cgroup below that of the step, name)] of the processes of a job's step."""
    out = []
    for cgroup, name in json.loads(host.run(["python3", "/shared/processes.py"]).stdout).values():
        found = re.fullmatch(STEP, cgroup)
        assert found, (cgroup, name)
        if (int(found[1]), found[2]) == (job, step):
            out.append((found[3], name))
    return sorted(out)


def output(host, job):
    return host.run(["cat", f"/shared/slurm-{job}.out"], check=False).stdout


def submit(host, *lines, options=("-n2", f"--gpus={GPUS}", "--mem=500")):
    return host.submit(ELASTIC, "--open-mode=append", "--requeue", *options, script="#!/bin/bash\n" + "\n".join(lines) + "\n")


def counted(host, job, rank):
    return [int(number) for number in re.findall(rf"^rank {rank} (\d+)$", output(host, job), re.MULTILINE)]


def wait_counted(host, job, number):
    wait_for(lambda: all(number in counted(host, job, rank) for rank in (0, 1)), PATIENCE, f"both ranks of job {job} to count to {number}")


COUNTS = f"srun --mem=400 /usr/bin/python3 /shared/count.py {BALLAST_MIB}"


def ends_well(host, job):
    """Each rank has said every number once, to the last."""
    host.run(["touch", f"/shared/end-{job}"])
    host.wait_job(job, seconds=PATIENCE)
    for rank in (0, 1):
        numbers = counted(host, job, rank)
        assert numbers and numbers == list(range(len(numbers))), output(host, job)


def saved(host, job):
    done = host.run(["singularityctl", "checkpoint", str(job)], user="alice", check=False, timeout=PATIENCE)
    assert done.returncode == 0 and done.stdout.startswith("saved as"), (done, host.agent_log()[-4000:])


def requeue(host, job):
    """It is saved, and runs again."""
    host.slurm("scontrol", "requeue", str(job), user="alice")
    wait_for(lambda: (host.job(job)["JobState"], host.job(job)["Restarts"]) == ("RUNNING", "1"), PATIENCE, "the job to run again")


def is_placed(host, job):
    """Each rank, what it has started, and its device proxy are in the cgroup that Slurm has made for its task."""
    found = processes(host, job, "0")
    for task in ("user/task_0", "user/task_1"):
        names = sorted(name for place, name in found if place == task and name != "singularity-init")
        assert names == ["python3", "singularity-proxyd", "singularity-task", "sleep"], found
    assert [name for _, name in found].count("singularity-init") == 1, found


def memory_of_tasks(host, job):
    """MiB that each of the two tasks of its step has of its own."""
    below = f"/sys/fs/cgroup/system.slice/{NAME}_slurmstepd.scope/job_{job}/step_0/user/task_"
    return [int(host.run(f"sed -n 's/^anon //p' {below}{task}/memory.stat").stdout) >> 20 for task in (0, 1)]


def is_shared(memory):
    """Each has its own, and none has both's."""
    return min(memory) >= BALLAST_MIB and max(memory) - min(memory) < BALLAST_MIB / 2


def told_alike(host, job):
    """Whether Slurm tells that of the two tasks."""
    shown = host.slurm("sstat", "--noheader", "--parsable2", "--format=AveRSS,MaxRSS", "-j", f"{job}.0", check=False)
    found = re.fullmatch(r"(\d+)K\|(\d+)K", shown)
    average, most = (int(kib) >> 10 for kib in found.groups()) if found else (0, 0)
    return is_shared([2 * average - most, most])


def test_a_rank_is_in_the_cgroup_of_its_task(host):
    job = submit(host, "echo begun", COUNTS, "echo end")
    wait_counted(host, job, 10)
    is_placed(host, job)
    assert is_shared(memory_of_tasks(host, job))
    wait_for(lambda: told_alike(host, job), PATIENCE, "sstat to tell the same of both")
    ends_well(host, job)


def test_a_job_is_saved_while_it_runs(host):
    job = submit(host, COUNTS)
    wait_counted(host, job, 10)
    saved(host, job)
    is_placed(host, job)
    wait_counted(host, job, max(counted(host, job, 0)) + 3)
    ends_well(host, job)


def test_a_requeued_job_goes_on(host):
    """Each rank where the task of the new run is, and its memory is accounted there."""
    job = submit(host, COUNTS)
    wait_counted(host, job, 10)
    requeue(host, job)
    wait_counted(host, job, max(counted(host, job, 0)) + 3)
    is_placed(host, job)
    # What restores it is in the first task's while it is at it.
    wait_for(lambda: is_shared(memory_of_tasks(host, job)), PATIENCE, "the memory of each rank to be its task's")
    ends_well(host, job)


def test_limits_hold_after_a_restore(host):
    job = submit(host, "srun --mem=200 /usr/bin/python3 /shared/count.py 1")
    wait_counted(host, job, 10)
    requeue(host, job)
    wait_counted(host, job, max(counted(host, job, 0)) + 3)
    host.run(["touch", f"/shared/more-{job}"])
    host.wait_job(job, ("FAILED", "OUT_OF_MEMORY"), seconds=PATIENCE)
    killed = host.run(["dmesg"]).stdout
    assert re.search(rf"oom-kill:.*/job_{job}/step_0/user.*task=python3", killed), killed[-4000:]


def test_a_cancelled_job_leaves_nothing(host):
    job = submit(host, COUNTS)
    wait_counted(host, job, 3)
    host.slurm("scancel", str(job))
    host.wait_job(job, ("CANCELLED",), seconds=PATIENCE)


def test_a_suspended_job_stands_still(host):
    job = submit(host, COUNTS)
    wait_counted(host, job, 3)
    host.slurm("scontrol", "suspend", str(job))
    states = "ps -C python3 -o stat=,cgroup= | grep /job_"
    wait_for(lambda: [line[0] for line in host.run(states).stdout.splitlines()] == ["T", "T"], PATIENCE, "both ranks to stand still")
    host.slurm("scontrol", "resume", str(job))
    ends_well(host, job)


def test_the_agent_is_restarted_under_a_running_job(host):
    job = submit(host, COUNTS)
    wait_counted(host, job, 3)
    host.run(["systemctl", "restart", "singularityd"])
    ends_well(host, job)
