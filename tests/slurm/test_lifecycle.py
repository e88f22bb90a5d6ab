# SPDX-License-Identifier: GPL-2.0-or-later
"""Elastic jobs that Slurm ends and runs again: no work is lost, and what they write is as if nobody had disturbed them."""

import os
import random
import re
import shlex
import time

import pytest
import scenarios
from conftest import METRICS, elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, WRAPPER, assert_clean, checks, left
from faults import agent_log
from virtualcluster.errors import wait_for

# Periodic checkpoints more often than anybody would want them, and checks sooner.
OFTEN = "elastic:\n  checkpoint_every_least: 1s\n  check_after: 2s\n"
OTHER_STORE = "  others: /shared/other\n"  # in the section of the other
EVERY = "--singularity-checkpoint-every=0:02"
NEVER = "--singularity-checkpoint-every=off"
HELD = ("JobHeldUser", "JobHeldAdmin", "job_requeued_in_held_state")
# Its state is in its memory alone. Whoever counts twice, or not at all, is seen.
COUNT = """
import os, time
rank = os.environ["SLURM_PROCID"]
for number in range({numbers}):
    print("rank", rank, number, flush=True)
    time.sleep({pause})
"""
# The same until it is told to end. It has a child that cannot be saved, until it is told to let go of that.
HOLDS = """
import itertools, os, subprocess, time
rank, job = os.environ["SLURM_PROCID"], os.environ["SLURM_JOB_ID"]
child = subprocess.Popen(["unshare", "-Ur", "sleep", "1000"])
for number in itertools.count():
    print("rank", rank, number, flush=True)
    time.sleep(0.05)
    if child and os.path.exists(f"/shared/free-{job}"):
        child.kill()
        child.wait()
        child = None
    if os.path.exists(f"/shared/end-{job}"):
        break
"""
SAID = "singularity-task: "


def script(*lines):
    return "#!/bin/bash\n" + "\n".join(lines) + "\n"


def count(numbers=200, pause=0.05):
    return f"srun /usr/bin/python3 -c {shlex.quote(COUNT.format(numbers=numbers, pause=pause))}"


def output(cluster, job):
    return cluster.controller.run(["cat", f"/shared/slurm-{job}.out"], check=False).stdout


def counted(cluster, job):
    """{rank: what it has counted}, from the job's output."""
    out = {}
    for rank, number in re.findall(r"^rank (\d+) (\d+)$", output(cluster, job), re.MULTILINE):
        out.setdefault(int(rank), []).append(int(number))
    return out


def wait_counted(cluster, job, number, ranks):
    def reached():
        shown = counted(cluster, job)
        return len(shown) == ranks and all(one[-1] >= number for one in shown.values())

    wait_for(reached, PATIENCE, f"{ranks} ranks to count to {number}")


def requeue(cluster, job):
    cluster.slurm("scontrol", "requeue", str(job))


@pytest.fixture(scope="module")
def cluster(release):
    graceful = "PartitionName=graceful Nodes=ALL PriorityTier=1 GraceTime=110 MaxTime=INFINITE State=UP"
    with elastic_up(release, OTHER_STORE + OFTEN, nodes=2, conf=TIME_TO_SAVE, partitions=[*scenarios.PARTITIONS, graceful]) as made:
        yield made
        assert_clean(made)


def submit(cluster, *lines, options=("-N2", "--ntasks-per-node=2"), **others):
    return cluster.submit(ELASTIC, "--open-mode=append", "--requeue", *options, script=script(*lines), **others)


def assert_whole(cluster, job, numbers, ranks=4):
    shown = output(cluster, job)
    assert counted(cluster, job) == {rank: list(range(numbers)) for rank in range(ranks)}, shown


def test_requeued_jobs_go_on(cluster):
    """On the same two nodes, twice. The script is begun again, and ends once."""
    job = submit(cluster, "echo begun", count(), "echo end")
    for number in (20, 60):
        wait_counted(cluster, job, number, 4)
        requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 200)
    shown = output(cluster, job)
    assert shown.count("begun") == 3 and shown.count("end") == 1


# Where the kernel accounts its memory.
PLACED = """
import os, time
rank = os.environ["SLURM_PROCID"]
for number in range(100):
    with open("/proc/self/cgroup", encoding="ascii") as file:
        (place,) = [line.rstrip().rpartition(":")[2] for line in file if ":memory:" in line]
    print("rank", rank, number, flush=True)
    print("place", rank, place, flush=True)
    time.sleep(0.1)
"""


def test_restored_ranks_are_in_the_cgroups_of_their_tasks(cluster):
    job = submit(cluster, f"srun /usr/bin/python3 -c {shlex.quote(PLACED)}")
    wait_counted(cluster, job, 10, 4)
    requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 100)
    shown = output(cluster, job)
    places = {int(rank): {task for one, task in re.findall(r"^place (\d+) \S+/(\S+)$", shown, re.MULTILINE) if one == rank} for rank in "0123"}
    assert places == {rank: {f"task_{rank}"} for rank in range(4)}, shown


def test_jobs_go_on_where_there_is_room(cluster):
    """Two nodes, then one for all four ranks, then two."""
    job = submit(cluster, count(300), options=["-n4", "-N1-2", "--spread-job"])
    wait_counted(cluster, job, 20, 4)
    assert cluster.job(job)["NumNodes"] == "2"
    try:
        cluster.slurm("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
        requeue(cluster, job)
        wait_counted(cluster, job, 60, 4)
        assert cluster.job(job)["NodeList"] == "n2"
    finally:
        cluster.slurm("scontrol", "update", "NodeName=n1", "State=RESUME")
    requeue(cluster, job)
    wait_counted(cluster, job, 100, 4)
    assert cluster.job(job)["NumNodes"] == "2"
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 300)


# What all its threads and its child are bound to.
BOUND = """
import os, subprocess, threading, time
child = subprocess.Popen(["sleep", "1000"])
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
for number in range(200):
    threads, children = os.listdir("/proc/self/task"), open(f"/proc/self/task/{os.getpid()}/children").read().split()
    assert len(threads) == 2 and len(children) == 1
    print("rank 0", number, flush=True)
    print("bound", *sorted({cpu for one in threads + children for cpu in os.sched_getaffinity(int(one))}), flush=True)
    time.sleep(0.05)
child.kill()
"""


def test_ranks_are_bound_where_they_go_on(cluster):
    """To the processors of the task that is theirs now. As task/affinity would bind it; here by hand, since the hosts' processors are not real."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("there is only one processor")
    bind = f'export SINGULARITY_STEP_HOSTS=$(hostname); exec taskset -c $((SLURM_RESTART_COUNT > 0 ? {cpus[1]} : {cpus[0]})) {WRAPPER} "$@"'
    step = ["srun", "--singularity-off", "-n1", "bash", "-c", bind, "bash", "/usr/bin/python3", "-c", BOUND]
    job = submit(cluster, shlex.join(step), options=["-N1"])
    wait_counted(cluster, job, 20, 1)
    requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 200, ranks=1)
    shown = re.findall("^bound (.*)$", output(cluster, job), re.MULTILINE)
    assert shown[0] == str(cpus[0]) and shown[-1] == str(cpus[1]) and len(shown) == 200, shown


HEARS = """
import signal, time
heard = []
signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
print("listens", flush=True)
while not heard:
    time.sleep(0.05)
print("heard", heard, flush=True)
"""


def test_programs_hear_of_other_ends(cluster):
    """Of scancel, and of a signal that somebody sends."""
    program = f"srun -N1 -n1 /usr/bin/python3 -c {shlex.quote(HEARS)}"
    for cancel in (["scancel"], ["scancel", "--signal=TERM"]):
        job = submit(cluster, program, options=["-N1"])
        wait_for(lambda job=job: "listens" in output(cluster, job), PATIENCE, "the program to listen")
        cluster.slurm(*cancel, str(job))
        cluster.wait_job(job, ("CANCELLED",) if cancel == ["scancel"] else ("COMPLETED",), seconds=PATIENCE)
        if cancel != ["scancel"]:
            assert "heard [15]" in output(cluster, job)


def test_batch_scripts_hear_of_other_ends(cluster):
    job = submit(cluster, "trap 'echo told; exit 3' TERM", "echo waits", "sleep 1000 & wait", options=["-N1"])
    wait_for(lambda: "waits" in output(cluster, job), PATIENCE, "the script to wait")
    cluster.slurm("scancel", "--batch", "--signal=TERM", str(job))
    cluster.wait_job(job, ("FAILED",), seconds=PATIENCE)
    assert "told" in output(cluster, job) and cluster.job(job)["ExitCode"] == "3:0"


def test_nothing_of_a_script_runs_behind_a_saved_step(cluster):
    """Not what follows, not what a trap does, and not what runs beside it."""
    job = submit(cluster, "trap 'echo trap' TERM EXIT", "(for i in $(seq 200); do sleep 0.1; echo beside; done) & ",
                 count(100) + "; echo behind $?", "kill %1", "trap - EXIT", options=["-N1", "-n1"])
    wait_counted(cluster, job, 20, 1)
    requeue(cluster, job)
    wait_for(lambda: cluster.job(job)["JobState"] == "PENDING", PATIENCE, "the job to wait for its next run")
    assert "behind" not in output(cluster, job) and "trap" not in output(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 100, 1)
    assert output(cluster, job).count("behind 0") == 1


def test_jobs_go_on_after_their_time_limit(cluster):
    # That its time is over slurmctld sees within 30 s, and its limit is one minute then, also that of its next run.
    numbers = 900
    job = submit(cluster, count(numbers), options=["-N1", "-n2", "--time=60"])
    wait_counted(cluster, job, 20, 2)
    cluster.slurm("scontrol", "update", f"JobId={job}", "EndTime=now")
    wait_for(lambda: cluster.job(job)["Restarts"] == "1", PATIENCE, "the job to be requeued")
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, numbers, 2)


def test_preempted_jobs_are_saved_in_their_grace_time(cluster):
    """Slurm tells only the steps of its beginning; nobody waits for its end."""
    job = submit(cluster, count(120), options=["-N2", "--ntasks-per-node=2", "--exclusive", "-p", "graceful"])
    wait_counted(cluster, job, 20, 4)
    high = cluster.submit("-N2", "--exclusive", "-p", "high", "--wrap=true")
    cluster.wait_job(high, seconds=PATIENCE)
    cluster.wait_job(job, seconds=PATIENCE)
    assert cluster.job(job)["Restarts"] == "1"
    assert_whole(cluster, job, 120)


def test_preempted_scripts_are_saved_with_their_steps_in_their_grace_time(cluster):
    """Slurm tells only the step, and the script must not see its end."""
    job = submit(cluster, "echo begun", count(120), "echo end", options=["--singularity-save-script", "-N2", "--ntasks-per-node=2", "--exclusive", "-p", "graceful"])
    wait_counted(cluster, job, 20, 4)
    high = cluster.submit("-N2", "--exclusive", "-p", "high", "--wrap=true")
    cluster.wait_job(high, seconds=PATIENCE)
    cluster.wait_job(job, seconds=PATIENCE)
    assert cluster.job(job)["Restarts"] == "1"
    assert_whole(cluster, job, 120)
    assert output(cluster, job).count("begun") == 1 and output(cluster, job).count("end\n") == 1


def test_jobs_of_two_users(cluster):
    """At once, on the same nodes."""
    jobs = {user: submit(cluster, count(), user=user, options=["-N2", "--ntasks-per-node=1", "--mem=100M", "-o", "slurm-%j.out"]) for user in ("alice", "bob")}
    for number in (20, 60):
        for job in jobs.values():
            wait_counted(cluster, job, number, 2)
        for job in jobs.values():
            cluster.wait_job(job, ("RUNNING",), seconds=PATIENCE)  # it may have counted as far in the run before
            requeue(cluster, job)
    for job in jobs.values():
        cluster.wait_job(job, seconds=PATIENCE)
        assert_whole(cluster, job, 200, 2)


def test_another_program_begins_anew(cluster):
    """With a word to the user."""
    first, second = count(1000), count(30, 0.01)
    job = submit(cluster, f"if [ -z $SLURM_RESTART_COUNT ]; then {first}; else {second}; fi", options=["-N1", "-n1"])
    wait_counted(cluster, job, 20, 1)
    requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    assert counted(cluster, job)[0][-30:] == list(range(30))
    assert "the step begins anew: " in output(cluster, job)


def test_finished_steps_are_not_run_again(cluster):
    """The script hears how they have ended, at once."""
    job = submit(cluster, "srun sh -c 'echo ran $SLURM_PROCID; exit $((SLURM_PROCID * 2))'; echo first $?", "srun -N1 -n1 echo well; echo second $?",
                 count(100), "srun -N1 -n1 echo last")
    for number in (20, 50):
        wait_counted(cluster, job, number, 4)
        requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 100)
    shown = output(cluster, job).splitlines()
    assert sorted(line for line in shown if line.startswith("ran ")) == [f"ran {rank}" for rank in range(4)]
    assert [shown.count(line) for line in ("well", "last", "first 6", "second 0")] == [1, 1, 3, 3]


def test_ranks_that_have_ended_are_not_run_again(cluster):
    """Also where others of the same virtual node go on."""
    code = f"import os\nif int(os.environ['SLURM_PROCID']) < 3:\n    print('well', os.environ['SLURM_PROCID'])\n    raise SystemExit\n{COUNT.format(numbers=100, pause=0.05)}"
    job = submit(cluster, f"srun /usr/bin/python3 -c {shlex.quote(code)}")
    wait_counted(cluster, job, 20, 1)
    requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    shown = output(cluster, job)
    assert counted(cluster, job) == {3: list(range(100))}, shown
    assert sorted(re.findall(r"^well \d$", shown, re.MULTILINE)) == ["well 0", "well 1", "well 2"], shown


def in_store(cluster, *options):
    shown = cluster.host("n1").run(["singularityctl", "store", "ls", *options], check=False).stdout
    return [line for line in shown.splitlines() if "-s" in line]


def test_another_store(cluster):
    """The job is saved there, goes on from there elsewhere, and nothing of it is left when it has ended."""
    job = submit(cluster, count(150), "srun -n1 -N1 true", options=["-N1", "-n2", "--singularity-store=/shared/other/", EVERY])

    def saved(*options):
        return [line.split()[0] for line in in_store(cluster, *options) if f"-s{job}-0" in line]

    default, other = ["--store", "/shared/store"], ["--store", "/shared/other"]
    wait_for(lambda: saved(*other), PATIENCE, "a checkpoint in the other store")
    wait_counted(cluster, job, 20, 2)
    host = cluster.job(job)["NodeList"]
    cluster.slurm("scontrol", "requeuehold", str(job))
    wait_for(lambda: cluster.job(job)["JobState"] == "PENDING" and not any(left(cluster).values()), PATIENCE, "its checkpoint")
    assert not saved(*default), "nothing of it is in that of the others"
    names = saved(*other)
    assert names and saved() == names, "without --store all stores are shown"
    assert f"checkpoint: {names[0]}" in cluster.host("n1").run(["singularityctl", "store", "show", names[0]]).stdout
    cluster.slurm("scontrol", "update", f"JobId={job}", f"ExcNodeList={host}")
    cluster.slurm("scontrol", "release", str(job))
    wait_for(lambda: cluster.job(job)["JobState"] == "RUNNING", PATIENCE, "its next run")
    assert cluster.job(job)["NodeList"] != host
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 150, 2)
    assert not saved(*default)
    wait_for(lambda: not saved(), PATIENCE, "nothing to be left in any store")


def test_nothing_is_kept_of_jobs_that_have_ended(cluster):
    """Neither of those that end by themselves nor of those that are cancelled."""
    well, cancelled = (submit(cluster, count(number), options=["-N1", "-n1"]) for number in (100, 1000))
    for job in (well, cancelled):
        wait_counted(cluster, job, 10, 1)
        requeue(cluster, job)
    wait_for(lambda: any(f"-s{cancelled}-0" in line for line in in_store(cluster)), PATIENCE, "its checkpoint")
    wait_for(lambda: cluster.job(cancelled)["JobState"] == "RUNNING", PATIENCE, "its next run")
    wait_counted(cluster, cancelled, max(counted(cluster, cancelled)[0]) + 10, 1)  # in that run
    cluster.slurm("scancel", str(cancelled))
    cluster.wait_job(well, seconds=PATIENCE)
    wait_for(lambda: not in_store(cluster), PATIENCE, f"an empty store, not {in_store(cluster)}")


def test_agents_that_die_are_not_noticed(cluster):
    """Neither while the job runs nor when it is to be saved."""
    job = submit(cluster, count())
    wait_counted(cluster, job, 10, 4)
    for node in ("n1", "n2"):
        cluster.stop_daemon(node, "singularityd", "KILL")
        cluster.start_agents(node)
    wait_counted(cluster, job, 30, 4)
    requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 200)


def keep_state(cluster, job):
    """What slurmctld has written of the running job. What it is made to believe once more: a function."""
    state = "/var/lib/slurm/slurmctld"
    cluster.slurm("scontrol", "update", f"JobId={job}", f"Comment=runs-{job}")
    wait_for(lambda: cluster.controller.run(["grep", "-q", f"runs-{job}", f"{state}/job_state"], check=False).returncode == 0,
             PATIENCE, "slurmctld to write that the job runs")
    cluster.controller.run(["cp", f"{state}/job_state", "/tmp/job_state"])

    def forget():
        cluster.controller.run(f"cp /tmp/job_state {state}/job_state && cp /tmp/job_state {state}/job_state.old")
        cluster.start_daemon("ctl", "slurmctld")
        cluster.wait_controller()

    return forget


def test_a_controller_that_forgets_a_requeue(cluster):
    """What a slurmctld that dies has not written yet. It hears of the script's end as of that of the job."""
    job = submit(cluster, count(300))
    wait_counted(cluster, job, 20, 4)
    forget = keep_state(cluster, job)
    batch_host = cluster.job(job)["BatchHost"]
    requeue(cluster, job)
    wait_for(lambda: f"-s{job}-0: saved in" in agent_log(cluster, batch_host), PATIENCE, "its checkpoint")
    cluster.stop_daemon("ctl", "slurmctld", "KILL")
    wait_for(lambda: not any(left(cluster).values()), PATIENCE, "the end of its step")
    forget()
    wait_for(lambda: cluster.job(job)["Restarts"] == "1", PATIENCE, "the job to be run again")
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 300)


def test_a_controller_that_forgets_an_end(cluster):
    """The job is run again, as Slurm does when no node has it any more. Its step has ended, and is not."""
    job = submit(cluster, count(200))
    wait_counted(cluster, job, 5, 4)
    forget = keep_state(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    time.sleep(2)  # the agents have heard of the end
    cluster.stop_daemon("ctl", "slurmctld", "KILL")
    forget()
    assert cluster.job(job)["JobState"] == "RUNNING"
    requeue(cluster, job)
    wait_for(lambda: cluster.job(job)["Restarts"] == "1", PATIENCE, "the job to be run again")
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 200)


def test_a_controller_that_cannot_be_asked(cluster):
    """Nobody on the nodes knows that the job runs again: it ends, and goes on from where it was when it was told to."""
    job = submit(cluster, count(300))
    wait_counted(cluster, job, 40, 4)
    program = "/usr/lib/singularity/singularity-slurm"
    for node in cluster.nodes:
        node.run(f"mv {program} {program}.away && printf '#!/bin/sh\\necho nobody answers >&2; exit 1\\n' > {program} && chmod 755 {program}")
    try:
        requeue(cluster, job)
        wait_for(lambda: not any(left(cluster).values()), PATIENCE, "the end of its step")
    finally:
        for node in cluster.nodes:
            node.run(f"mv {program}.away {program}")
    cluster.wait_job(job, seconds=PATIENCE)
    shown = counted(cluster, job)
    assert len(shown) == 4
    for rank, numbers in shown.items():
        # Its script was told to end as well, and srun with it: what the rank wrote in that moment nobody has taken.
        assert numbers.count(0) == 1 and numbers[-1] == 299, f"rank {rank} has begun anew: {numbers}"
        assert all(number > 30 for before, number in zip(numbers, numbers[1:]) if number != before + 1), (rank, numbers)


def said_to_user(cluster, job):
    """All that the step's tasks have said in the job's output."""
    return [line for line in output(cluster, job).splitlines() if SAID in line]


def status_of(cluster, job):
    return cluster.controller.run(["singularityctl", "status", str(job)], user="alice").stdout


def test_a_user_is_told_that_a_job_cannot_be_saved(cluster):
    """Once, with the reason, until it can. What that means when the job is requeued is told then."""
    job = submit(cluster, f"srun /usr/bin/python3 -c {shlex.quote(HOLDS)}", options=["-N2", "--ntasks-per-node=2", EVERY])
    wait_for(lambda: said_to_user(cluster, job), PATIENCE, f"the user to be told: {output(cluster, job)}")
    wait_for(lambda: "\nunsavable: " in status_of(cluster, job), PATIENCE, f"the status to say so: {status_of(cluster, job)}")

    def failures():
        return sum(len(re.findall(rf"s{job}-0\b.* user namespace", agent_log(cluster, host.name))) for host in cluster.nodes)

    before = failures()
    wait_for(lambda: failures() >= before + 2, PATIENCE, "more checkpoints to fail")
    said = said_to_user(cluster, job)
    assert len(said) == 1 and re.search(r"\(sleep\).* in another user namespace than the node's init .* is requeued it begins anew$", said[0]), said
    requeue(cluster, job)
    wait_for(lambda: len(said_to_user(cluster, job)) == 4, PATIENCE, f"the user to be told of both runs: {said_to_user(cluster, job)}")
    said = said_to_user(cluster, job)
    assert said[1].endswith("; there is no earlier checkpoint: it will begin anew") and "the step begins anew" in said[2], said
    assert said[3].endswith("is requeued it begins anew"), said
    cluster.controller.run(["touch", f"/shared/free-{job}"])
    wait_for(lambda: cluster.job(job).get("checkpoints") and "\nunsavable: " not in status_of(cluster, job), PATIENCE, "it to be saved")
    requeue(cluster, job)
    wait_for(lambda: cluster.job(job)["Restarts"] == "2" and cluster.job(job)["JobState"] == "RUNNING", PATIENCE, "it to go on")
    wait_counted(cluster, job, max(one[-1] for one in counted(cluster, job).values()) + 10, 4)
    cluster.controller.run(["touch", f"/shared/end-{job}"])
    cluster.wait_job(job, seconds=PATIENCE)
    assert said_to_user(cluster, job) == said, output(cluster, job)
    for numbers in counted(cluster, job).values():
        assert [after for number, after in zip(numbers, numbers[1:]) if after != number + 1] == [0], numbers


def test_a_user_is_told_before_any_checkpoint(cluster):
    """Once, whichever agent looks, and until what was found has gone."""
    job = submit(cluster, f"srun /usr/bin/python3 -c {shlex.quote(HOLDS)}", options=["-N2", "--ntasks-per-node=2", NEVER])
    wait_for(lambda: said_to_user(cluster, job), PATIENCE, f"the user to be told: {output(cluster, job)}")
    wait_for(lambda: "\nunsavable: " in status_of(cluster, job), PATIENCE, f"the status to say so: {status_of(cluster, job)}")
    for node in ("n1", "n2"):
        cluster.stop_daemon(node, "singularityd", "KILL")
        cluster.host(node).run(["rm", "-f", METRICS])
        cluster.start_agents(node)
    wait_for(lambda: min(checks(cluster, "obstacle").values()) > 0, PATIENCE, "the next agents to look as well")
    said = said_to_user(cluster, job)
    assert len(said) == 1 and re.search(r"\(sleep\).* in another user namespace than the node's init .* is requeued it begins anew$", said[0]), said
    assert "\nunsavable: " in status_of(cluster, job)
    cluster.controller.run(["touch", f"/shared/free-{job}"])
    wait_for(lambda: "\nunsavable: " not in status_of(cluster, job), PATIENCE, "the status to say nothing of it any more")
    assert not cluster.job(job).get("checkpoints")
    assert not any(re.search(rf"s{job}-0\b.*while saving", agent_log(cluster, host.name)) for host in cluster.nodes)
    cluster.controller.run(["touch", f"/shared/end-{job}"])
    cluster.wait_job(job, seconds=PATIENCE)
    assert said_to_user(cluster, job) == said, output(cluster, job)


def test_a_user_of_an_ordinary_job_is_told_nothing(cluster):
    """Processes begin and end in it all the time."""
    before = checks(cluster, "clear")
    churn = "import os, subprocess\nwhile not os.path.exists(f'/shared/end-{os.environ[\"SLURM_JOB_ID\"]}'):\n    subprocess.run(['/bin/true'])\n"
    job = submit(cluster, f"srun /usr/bin/python3 -c {shlex.quote(churn)}", options=["-N2", "--ntasks-per-node=2", NEVER])
    wait_for(lambda: all(number > before[name] for name, number in checks(cluster, "clear").items()), PATIENCE, "both nodes to be looked at")
    assert "\nunsavable: " not in status_of(cluster, job)
    cluster.controller.run(["touch", f"/shared/end-{job}"])
    cluster.wait_job(job, seconds=PATIENCE)
    assert not said_to_user(cluster, job), output(cluster, job)


# Takes the place of the agents' workers: one that is to check a node (WorkMessage::check) comes to no end.
NEVER_CHECKS = """#!/usr/bin/python3
import os, signal, socket, struct
version, kind = struct.unpack("HH", socket.socket(fileno=os.dup(3)).recv(4, socket.MSG_PEEK))
if kind == 152:
    with open("/run/checker.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("/run/checker.new", "/run/checker")
    signal.pause()
os.execv("/usr/lib/singularity/worker", ["singularity-worker"])
"""


def test_a_checkpoint_does_not_wait_for_a_check(cluster):
    """It ends the check of each node before it touches it."""
    for host in cluster.nodes:
        cluster.host(host.name).run("cd /usr/lib/singularity && cp -p singularity-worker worker && cp -p worker new && cat >new && mv new singularity-worker",
                                    stdin=NEVER_CHECKS)
    try:
        job = submit(cluster, count(600), options=["-N2", "--ntasks-per-node=2", "--singularity-checkpoint-every=0:10"])
        for host in cluster.nodes:
            wait_for(lambda name=host.name: cluster.host(name).run(["test", "-e", "/run/checker"], check=False).returncode == 0, PATIENCE, "a check")
        wait_for(lambda: cluster.job(job).get("checkpoints"), PATIENCE, "the job to be saved")
        for host in cluster.nodes:
            gone = cluster.host(host.name).run("kill -0 $(cat /run/checker)", check=False)
            assert "No such process" in gone.stderr, gone
    finally:
        for host in cluster.nodes:
            cluster.host(host.name).run("cd /usr/lib/singularity && mv worker singularity-worker; rm -f /run/checker")
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 600)
    assert not said_to_user(cluster, job)


def test_a_job_that_cannot_be_restored_is_held(cluster):
    """After it has been tried several times; nothing of it is lost."""
    job = submit(cluster, count(120))
    wait_counted(cluster, job, 20, 4)
    cluster.slurm("scontrol", "requeuehold", str(job))
    wait_for(lambda: cluster.job(job)["Reason"] in HELD and not any(left(cluster).values()), PATIENCE, f"its checkpoint: {cluster.job(job)}")
    criu = "$(command -v criu)"
    for node in cluster.nodes:
        node.run(f"mv {criu} {criu}.away")
    try:
        cluster.slurm("scontrol", "release", str(job))
        wait_for(lambda: cluster.job(job)["Reason"] in HELD and int(cluster.job(job)["Restarts"]) > 1, PATIENCE, f"it to be held: {cluster.job(job)}")
    finally:
        for node in cluster.nodes:
            node.run('for p in /usr/sbin /usr/bin /usr/local/sbin; do [ ! -e $p/criu.away ] || mv $p/criu.away $p/criu; done')
    assert cluster.job(job)["Restarts"] == "4"
    comment = cluster.slurm("squeue", "-h", "-j", str(job), "-o", "%k")
    assert comment.startswith("singularity: the job is held, because it could not go on from its checkpoint 3 times"), comment
    assert "criu" in comment.lower(), comment
    assert any(f"-s{job}-0" in line for line in in_store(cluster)), in_store(cluster)
    cluster.slurm("scontrol", "release", str(job))
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 120)


def test_a_node_that_loses_power(release):
    """The job goes on from its last periodic checkpoint: what it has written since, it writes again."""
    with elastic_up(release, OFTEN, nodes=2, conf={"SlurmdTimeout": "20"}) as made:
        job = submit(made, count(250), options=["-n4", "-N1-2", "--spread-job", EVERY])
        wait_for(lambda: in_store(made), PATIENCE, "a checkpoint")
        wait_counted(made, job, 80, 4)
        assert made.job(job)["NumNodes"] == "2"
        host = "n2" if made.job(job)["BatchHost"] == "n1" else "n1"
        made.kill(host)
        wait_for(lambda: made.job(job)["Restarts"] == "1" and made.job(job)["JobState"] == "RUNNING", PATIENCE, "the job to be run again")
        made.wait_job(job, seconds=PATIENCE)
        for rank, numbers in counted(made, job).items():
            again = [number for at, number in enumerate(numbers) if at and number <= numbers[at - 1]]
            assert len(again) == 1 and 10 < again[0] < 250, (rank, numbers)
            assert sorted(set(numbers)) == list(range(250)), (rank, numbers)


SEED = int(os.environ.get("SINGULARITY_TEST_SEED") or random.randrange(1 << 32))


def test_many_requeues_at_random(cluster):
    """Nothing is lost or written twice, however often; Slurm's delay between two runs does not apply."""
    chance = random.Random(SEED)
    print("seed", SEED)
    rounds = 20
    job = submit(cluster, count(2000, 0.02))
    for number in range(rounds):
        wait_for(lambda number=number: (cluster.job(job)["JobState"], cluster.job(job)["Restarts"]) == ("RUNNING", str(number)), PATIENCE, f"run {number}")
        time.sleep(chance.uniform(0, 1))
        shown = counted(cluster, job)
        wait_counted(cluster, job, max((one[-1] for one in shown.values()), default=0) + 1, 4)
        requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    assert_whole(cluster, job, 2000)
    assert int(cluster.job(job)["Restarts"]) == rounds
    print(f"seed {SEED}: {rounds} requeues of one job survived")


def test_agents_that_die_while_a_job_is_requeued(cluster):
    """It goes on from that checkpoint, or begins again from one before: never with a gap."""
    chance = random.Random(SEED)
    print("seed", SEED)
    rounds = 4
    job = submit(cluster, count(700, 0.02), options=["-N2", "--ntasks-per-node=2", EVERY])
    for number in range(rounds):
        wait_counted(cluster, job, 20 * (number + 1), 4)
        restarts = int(cluster.job(job)["Restarts"])
        requeue(cluster, job)
        time.sleep(chance.uniform(0, 1.5))
        node = chance.choice(["n1", "n2"])
        cluster.stop_daemon(node, "singularityd", "KILL")
        cluster.start_agents(node)
        wait_for(lambda restarts=restarts: int(cluster.job(job)["Restarts"]) > restarts and cluster.job(job)["JobState"] == "RUNNING", PATIENCE, "the next run")
    cluster.wait_job(job, seconds=PATIENCE)
    for rank, numbers in counted(cluster, job).items():
        assert all(following <= number + 1 for number, following in zip(numbers, numbers[1:])), (rank, numbers)
        assert set(numbers) == set(range(700)), (rank, numbers)
    print(f"seed {SEED}: {rounds} agents killed, {rounds} survived")
