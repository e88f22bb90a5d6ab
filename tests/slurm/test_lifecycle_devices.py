# SPDX-License-Identifier: GPL-2.0-or-later
"""Elastic jobs with GPUs that an operator resizes: the same ranks on fewer and on more, and the same results to the bit."""

import os
import re

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean, checks
from virtualcluster.cluster import CHECKOUT
from virtualcluster.errors import wait_for

BUILD = os.path.abspath(os.environ.get("CTEST_BINARY_DIR", os.path.join(CHECKOUT, "build", "release")))
TRAINING = f"""#!/bin/bash
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --ntasks=8 {os.path.join(BUILD, "workloads", "train_data")} 1000
"""
# The first run waits to be requeued; the second shows what it would have been told, and what srun makes of that.
SHOW = """#!/bin/bash
echo begun
[ -n "$SLURM_RESTART_COUNT" ] || exec sleep 600
env | grep -E '^SLURM_(GPUS|GPUS_PER_NODE|NTASKS_PER_NODE|CPUS_PER_TASK|TRES_PER_TASK|TRES_BIND|OVERCOMMIT)=' | sort
srun --ntasks=8 bash -c 'echo task $SLURM_PROCID'
"""


# What each task is told of its GPUs, by Slurm and by the driver.
TELL = """
import ctypes, os
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
names = ("SLURM_LOCALID", "CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE")
print("sees", *(os.environ[name] for name in names), count.value, flush=True)
"""


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, "elastic:\n  check_after: 1s\n  look_every: 1s\n", nodes=2, accounting=True, conf=TIME_TO_SAVE) as made:
        yield made
        assert_clean(made)


def output(cluster, job):
    return cluster.controller.run(["cat", f"/shared/slurm-{job}.out"], check=False).stdout


def submit(cluster, *options, script):
    return cluster.submit(ELASTIC, "--open-mode=append", "--requeue", *options, script=script)


def resize(cluster, job, *words):
    cluster.slurm("scontrol", "requeuehold", str(job))
    cluster.wait_job(job, ("PENDING",), seconds=PATIENCE)
    cluster.slurm("scontrol", "update", f"JobId={job}", *words)
    cluster.slurm("scontrol", "release", str(job))


def steps(text):
    return re.findall(r"^step \d+ loss \S+$", text, re.MULTILINE)


def results(text):
    return [line for line in text.splitlines() if re.match("step|parameters|losses|all|PASSED", line)]


def wait_more_steps(cluster, job, number=30):
    least = len(steps(output(cluster, job))) + number
    wait_for(lambda: len(steps(output(cluster, job))) >= least, PATIENCE, f"{least} steps of job {job}")


def work_done(cluster, job):
    """(collective operations, which communicators), as its last checkpoint has told."""
    found = re.fullmatch(r"0:(\d+):([0-9a-f]+):\d+", cluster.job(job).get("work", ""))  # a word of its AdminComment
    return (int(found[1]), found[2]) if found else (0, None)


def test_a_training_on_fewer_and_more_gpus(cluster):
    """8, 4, 2, and 8 again. Nothing is done twice, and it is known how much was done on how many GPUs."""
    done = []
    job = submit(cluster, "--gpus=8", "--ntasks=8", script=TRAINING)
    for gpus in (4, 2, 8):
        wait_more_steps(cluster, job)
        done.append(work_done(cluster, job))
        resize(cluster, job, f"TresPerJob=gres/gpu:{gpus}")
        wait_more_steps(cluster, job)
        assert f"gres/gpu={gpus}" in cluster.job(job)["AllocTRES"].split(",")
    memory = [int(number) for number in cluster.job(job)["memory"].split(":")]
    assert len(memory) == 3 and all(memory), memory
    assert re.search(r"^memory: +\S+ GiB on devices of \S+ GiB, \S+ GiB of programs$", cluster.slurm("singularityctl", "status", str(job)), re.MULTILINE)
    before, after_one, after_two = done
    assert before == (0, None) and 0 < after_one[0] < after_two[0] and after_one[1] == after_two[1], done
    cluster.wait_job(job, seconds=PATIENCE)
    looked_at = checks(cluster, "clear")
    undisturbed = submit(cluster, "--gpus=8", "--ntasks=8", script=TRAINING)
    cluster.wait_job(undisturbed, seconds=PATIENCE)
    assert "PASSED" in output(cluster, undisturbed)
    wait_for(lambda: sum(checks(cluster, "clear").values()) > sum(looked_at.values()), PATIENCE, "a node to have been looked at")
    assert not any("singularity-task: " in output(cluster, one) for one in (job, undisturbed)), output(cluster, job)
    assert results(output(cluster, job)) == results(output(cluster, undisturbed))


ASKS = f"""#!/bin/bash
export MASTER_ADDR=$(hostname)
cat > /shared/tell.py <<'EOF'
{TELL}EOF
srun --ntasks=4 /usr/bin/python3 /shared/tell.py
srun --ntasks=1 --gpus=1 --exact /usr/bin/python3 /shared/tell.py
"""


def told(cluster, job):
    return sorted(re.findall("^sees .*", output(cluster, job), re.MULTILINE))


@pytest.mark.parametrize("options, small", [
    (["--gpus=4"], ["TresPerJob=gres/gpu:2"]), (["--gpus-per-task=1"], ["TresPerTask=", "TresPerJob=gres/gpu:2"]),
    (["--gpus-per-node=4", "--ntasks-per-node=4"], ["TresPerNode=gres/gpu:2"])])
def test_a_job_that_begins_small_sees_what_it_has_asked_for(cluster, options, small):
    """As if it had begun at full size; but a step that asks for one GPU."""
    seen = []
    for update in ([], small):
        job = submit(cluster, "-N1", "-w", "n1", "--ntasks=4", "--hold", *options, script=ASKS)
        if update:
            cluster.slurm("scontrol", "update", f"JobId={job}", *update)
        cluster.slurm("scontrol", "release", str(job))
        cluster.wait_job(job, seconds=PATIENCE)
        seen.append(told(cluster, job))
    assert len(seen[0]) == 5 and seen[0] == seen[1]


def proxies_of_steps(cluster, host):
    """Process ids. The batch script has others."""
    listed = cluster.host(host).run(["ps", "-eo", "pid=,args="]).stdout.splitlines()
    return [line.split()[0] for line in listed if "singularity-proxyd --driver" in line and "-batch" not in line]


def test_a_training_that_begins_small_and_grows(cluster):
    """On one GPU, then on four: all of them work, and the bits are the same."""
    training = ASKS + f"srun --ntasks=8 --overcommit {os.path.join(BUILD, 'workloads', 'train_data')} 500\n"
    job = submit(cluster, "-N1", "-w", "n1", "--ntasks=4", "--gpus=4", "--hold", script=training)
    cluster.slurm("scontrol", "update", f"JobId={job}", "TresPerJob=gres/gpu:1")
    cluster.slurm("scontrol", "release", str(job))
    wait_more_steps(cluster, job)
    resize(cluster, job, "TresPerJob=gres/gpu:4")
    wait_more_steps(cluster, job, 5)
    assert len(proxies_of_steps(cluster, "n1")) == 4
    cluster.wait_job(job, seconds=PATIENCE)
    undisturbed = submit(cluster, "-N1", "-w", "n1", "--ntasks=4", "--gpus=4", script=training)
    cluster.wait_job(undisturbed, seconds=PATIENCE)
    assert results(output(cluster, job)) == results(output(cluster, undisturbed)) and "PASSED" in output(cluster, job)


def test_a_training_that_asks_slurm_before_each_step(cluster):
    """Of the ranks that stop together, some must run on to where the others are, and need Slurm's commands for that. A command that
    runs when a rank has come there ends before the rank is saved."""
    asks = "[ $SLURM_PROCID != 0 ] || squeue -h -j $SLURM_JOB_ID -o %T >/dev/null"
    job = submit(cluster, "--gpus=8", "--ntasks=8", script=TRAINING.replace("srun", f"export BEFORE_EACH_STEP='{asks}'\nsrun"))
    for gpus in (4, 8, 4):
        wait_more_steps(cluster, job, 5)
        resize(cluster, job, f"TresPerJob=gres/gpu:{gpus}")
    wait_more_steps(cluster, job, 5)
    shown = output(cluster, job)
    numbers = [int(one) for one in re.findall(r"^step (\d+) loss", shown, re.MULTILINE)]
    assert numbers == list(range(len(numbers))) and "singularity-task: " not in shown, shown
    cluster.slurm("scancel", str(job))


# A rank that writes what it has counted into memory of each device that it sees.
ALONE = """
import ctypes, os, time
cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)


class Device:
    def __init__(self, number):
        self.context, self.memory = ctypes.c_void_p(), ctypes.c_uint64()
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), number)
        call("cuCtxSetCurrent", self.context)
        call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(8))

    def read(self):
        kept = ctypes.c_uint64()
        call("cuCtxSetCurrent", self.context)
        call("cuMemcpyDtoH_v2", ctypes.byref(kept), self.memory, ctypes.c_size_t(8))
        return kept.value

    def write(self, value):
        call("cuCtxSetCurrent", self.context)
        call("cuMemcpyHtoD_v2", self.memory, ctypes.byref(ctypes.c_uint64(value)), ctypes.c_size_t(8))


count = ctypes.c_int()
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
assert count.value == int(os.environ["SEES"])
devices = [Device(number) for number in range(count.value)]
rank = int(os.environ["RANK"])
for number in range(400):
    for at, device in enumerate(devices):
        held = (rank * 10 + at) * 1000
        assert number == 0 or device.read() == held + number - 1, (rank, at, number, device.read())
        device.write(held + number)
    print("rank", rank, "number", number, flush=True)
    time.sleep(0.05)
"""
PROGRAM = "python3 /shared/alone.py"
FEWER, ALL = ["TresPerTask=", "TresPerJob=gres/gpu:2"], ["TresPerJob=gres/gpu:4"]


@pytest.mark.parametrize("options, line, moves", [
    (["--ntasks=4", "--gpus-per-task=1"], f"SEES=1 RANK=$SLURM_PROCID exec {PROGRAM}", [["Comment=again"], FEWER]),
    (["--ntasks=4", "--gpus=4"], f"CUDA_VISIBLE_DEVICES=$SLURM_LOCALID SEES=1 RANK=$SLURM_PROCID exec {PROGRAM}", [["TresPerJob=gres/gpu:1"], ALL]),
    (["--ntasks=1", "--gpus=4"], f"for n in 0 1 2 3; do CUDA_VISIBLE_DEVICES=$n SEES=1 RANK=$n {PROGRAM} & done; wait", [FEWER[1:], ALL]),
    (["--ntasks=2", "--gpus-per-task=2"], f"SEES=2 RANK=$SLURM_PROCID exec {PROGRAM}", [FEWER, ["TresPerJob=gres/gpu:1"]]),
], ids=["a device for each task", "as the program says", "children of one task", "two devices for each task"])
def test_ranks_that_see_some_devices(cluster, options, line, moves):
    """Requeued, on fewer devices and on all again: each goes on with what it had on its own, wherever they are."""
    text = f"#!/bin/bash\ncat > /shared/alone.py <<'EOF'\n{ALONE}EOF\nsrun sh -c '{line}'\n"
    job = submit(cluster, "-N1", "-w", "n1", *options, script=text)
    ranks = "01" if "--ntasks=2" in options else "0123"

    def numbers():
        lines = re.findall(r"^rank (\d) number (\d+)$", output(cluster, job), re.MULTILINE)
        return {rank: [int(number) for of, number in lines if of == rank] for rank in ranks}

    def go_on():
        reached = {rank: len(counted) for rank, counted in numbers().items()}
        wait_for(lambda: all(len(counted) > reached[rank] + 5 for rank, counted in numbers().items()), PATIENCE, "each of the ranks to go on")

    go_on()
    for update in moves:
        resize(cluster, job, *update)
        go_on()
    cluster.wait_job(job, seconds=PATIENCE)
    assert numbers() == {rank: list(range(400)) for rank in ranks}, output(cluster, job)


def kill_a_proxy(cluster, host):
    cluster.host(host).run(["kill", "-KILL", proxies_of_steps(cluster, host)[0]])


ON_TWO = ["-N2", "--ntasks-per-node=2", "--gpus-per-node=2"]
COUNTS = f"""#!/bin/bash
cat > /shared/alone.py <<'EOF'
{ALONE}EOF
echo begun
srun sh -c 'SEES=2 RANK=$SLURM_PROCID exec {PROGRAM}'
echo ended with $?
"""


def reached(cluster, job):
    """{rank: the last number}"""
    return dict(re.findall(r"^rank (\d) number (\d+)$", output(cluster, job), re.MULTILINE))


def wait_reached(cluster, job, number):
    wait_for(lambda: len(reached(cluster, job)) == 4 and min(map(int, reached(cluster, job).values())) >= number, PATIENCE,
             f"all ranks to count to {number}")


def test_a_device_is_lost(cluster):
    """Its proxy has died. The job goes on from its last checkpoint, by itself, without a failed step; a job that loses one again and
    again is held."""
    job = submit(cluster, *ON_TWO, script=COUNTS)
    wait_reached(cluster, job, 10)
    assert cluster.controller.run(["singularityctl", "checkpoint", str(job)], user="alice").returncode == 0
    wait_reached(cluster, job, 60)
    kill_a_proxy(cluster, "n2")
    wait_for(lambda: (cluster.job(job)["Restarts"], cluster.job(job)["JobState"]) == ("1", "RUNNING"), PATIENCE, "the job to be run again")
    cluster.wait_job(job, seconds=PATIENCE)
    shown = output(cluster, job)
    assert cluster.job(job)["JobState"] == "COMPLETED" and shown.count("ended with") == 1 and "ended with 0" in shown, shown
    assert re.search(r"^singularity-task: host n2: the proxy of device \d of \S+ has ended; what it has done since \S+ is lost$", shown, re.MULTILINE), shown
    for rank in "0123":
        numbers = [int(number) for of, number in re.findall(r"^rank (\d) number (\d+)$", shown, re.MULTILINE) if of == rank]
        again = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
        assert sorted(set(numbers)) == list(range(400)) and len(again) == 1 and numbers[again[0]] < 60, (rank, numbers)


def test_a_device_is_lost_again_and_again(cluster):
    """From one checkpoint the job goes on three times, then it is held, with what it has."""
    job = submit(cluster, *ON_TWO, script=COUNTS)
    wait_reached(cluster, job, 10)
    assert cluster.controller.run(["singularityctl", "checkpoint", str(job)], user="alice").returncode == 0
    for run in range(4):
        wait_for(lambda run=run: (cluster.job(job)["Restarts"], cluster.job(job)["JobState"]) == (str(run), "RUNNING"), PATIENCE, f"run {run}")
        before = len(output(cluster, job))
        wait_for(lambda before=before: "number" in output(cluster, job)[before:], PATIENCE, "a rank to go on")
        kill_a_proxy(cluster, "n1")
    wait_for(lambda: cluster.job(job)["JobState"] == "PENDING" and "eld" in cluster.job(job)["Reason"], PATIENCE, "the job to be held")
    assert "has lost a device 3 times since its checkpoint" in cluster.slurm("squeue", "-h", "-j", str(job), "-o", "%k")
    cluster.slurm("scancel", str(job))


@pytest.mark.parametrize("saved, act", [
    (False, lambda cluster, job: kill_a_proxy(cluster, "n2")), (True, lambda cluster, job: cluster.slurm("scancel", "-s", "KILL", f"{job}.0"))],
    ids=["without a checkpoint", "a step that is killed"])
def test_a_step_fails_with_its_device(cluster, saved, act):
    """Where there is nothing that it could go on from, and where it is its user's wish."""
    job = submit(cluster, *ON_TWO, script=COUNTS)
    wait_reached(cluster, job, 10)
    if saved:
        assert cluster.controller.run(["singularityctl", "checkpoint", str(job)], user="alice").returncode == 0
    act(cluster, job)
    if not saved: # the ranks of the other host would count on
        wait_for(lambda: "AssertionError" in output(cluster, job), PATIENCE, "a rank to fail")
        cluster.slurm("scancel", "-s", "KILL", f"{job}.0")
    cluster.wait_job(job, seconds=PATIENCE)
    shown = output(cluster, job)
    assert cluster.job(job)["Restarts"] == "0" and shown.count("begun") == 1 and re.search("^ended with [1-9]", shown, re.MULTILINE), shown


@pytest.mark.parametrize("options, update, told", [
    (["--gpus=8", "--ntasks=8"], ["TresPerJob=gres/gpu:4"], ["SLURM_GPUS=4"]),
    (["--gpus=8", "--ntasks=8"], ["TresPerJob=gres/gpu:8"], ["SLURM_GPUS=8"]),
    (["--ntasks=8", "--gpus-per-task=1", "--cpus-per-task=2"], ["TresPerTask=", "TresPerJob=gres/gpu:4"],
     ["SLURM_CPUS_PER_TASK=2", "SLURM_TRES_PER_TASK=cpu=2"]),
    (["-N2", "--ntasks=8", "--ntasks-per-node=4", "--gpus-per-node=4"], ["TresPerNode=gres/gpu:2"],
     ["SLURM_GPUS_PER_NODE=2", "SLURM_NTASKS_PER_NODE=4"]),
])
def test_the_script_is_told_of_what_it_has(cluster, options, update, told):
    """sruns in it start all tasks."""
    job = submit(cluster, "--singularity-no-save-script", *options, script=SHOW)
    wait_for(lambda: "begun" in output(cluster, job), PATIENCE, "the script to begin")
    resize(cluster, job, *update)
    cluster.wait_job(job, seconds=PATIENCE)
    shown = output(cluster, job).rpartition("begun\n")[2].splitlines()
    assert [line for line in shown if line.startswith("SLURM_")] == told
    assert sorted(line for line in shown if line.startswith("task")) == [f"task {rank}" for rank in range(8)], shown
