# SPDX-License-Identifier: GPL-2.0-or-later
"""Checkpoints of batch scripts that are saved themselves, while sruns run in them and all of it runs on: script and steps are one cut."""

import re
import shlex
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import elastic_up
from elastic import PATIENCE, TIME_TO_SAVE, assert_clean
from faults import agent_log, stop_worker
from test_lifecycle import EVERY, output, requeue
from test_scripts import COUNT, counted, counts, has, lines, node_of, shared, submit
from virtualcluster.errors import wait_for

NUMBERS = 150
# As often as a test needs that waits for two: most of its processor time is that of its checkpoints.
SELDOM = "--singularity-checkpoint-every=0:05"


# No worker looks whether the job could be saved: the next one that begins saves it.
CONF = "elastic:\n  checkpoint_every_least: 1s\n  check_after: 1h\n  look_every: 1s\n"


@pytest.fixture
def cluster(release):
    with elastic_up(release, CONF, nodes=2, conf=TIME_TO_SAVE) as made:
        made.controller.run(["sh", "-c", "printf %s \"$1\" > /shared/count.py", "sh", COUNT])
        yield made


def stored(cluster, job, what=r"\d{10}"):
    """Ids of the checkpoints of the script's steps, or of the script."""
    listing = cluster.host("n1").run(["singularityctl", "store", "ls"], check=False).stdout  # there is none before the first
    return [line.split()[0] for line in listing.splitlines() if re.search(rf"-s{job}-{what}\s", line)]


def until_saved(cluster, job, more_than=()):
    """The script has a checkpoint, with srun in it, that is not one of these. All of them."""
    def found():
        own = stored(cluster, job, "batch")
        return own if set(own) - set(more_than) else None
    return wait_for(found, PATIENCE, f"a checkpoint of the script of job {job}:\n{output(cluster, job)}")


def checkpoint(cluster, job):
    return cluster.controller.run(["singularityctl", "checkpoint", str(job)], check=False, timeout=2 * PATIENCE)


def lose_node(cluster, job):
    """Its power: what it has not made durable is lost. Slurm is told, as by whoever looks after the machines, and does what it does after
    SlurmdTimeout: that it finds out by itself is for test_lifecycle.py and test_scripts.py to see."""
    host = node_of(cluster, job)
    cluster.kill(host)
    cluster.slurm("scontrol", "update", f"NodeName={host}", "State=DOWN", "Reason=power")
    wait_for(lambda: cluster.job(job)["Restarts"] == "1" and cluster.job(job)["JobState"] == "RUNNING", PATIENCE, "the job to be run again")


def wait_end(cluster, job):
    """A test that fails after it shows what the job and its agents have said: output can be missing for many reasons."""
    cluster.wait_job(job, seconds=3 * PATIENCE)
    print(*(agent_log(cluster, one.name) for one in cluster.nodes), output(cluster, job), sep="\n")


def wait_more(cluster, job):
    """Until the script has written more into the job's output file, which comes again if its node dies now."""
    before = output(cluster, job).count("\nown 0 ")
    wait_for(lambda: output(cluster, job).count("\nown 0 ") > before + 1, PATIENCE, "more of the script's own lines")


def once(text, name, numbers=NUMBERS, ranks=1):
    assert sorted(text.splitlines()) == counted(name, ranks=ranks, numbers=numbers), text


def count(name, options="", numbers=NUMBERS):
    return counts(name, options).rsplit(" ", 1)[0] + f" {numbers}"


# Files that the script has open are as they were at the cut; what had not begun yet is of no interest.
LONG = ("set -e", "mkdir /shared/run-$SLURM_JOB_ID", "cd /shared/run-$SLURM_JOB_ID", "exec 7> seven", "echo before >&7")


# Each rank has a file of its own, to which it appends, and one that it writes in place.
FILES = """
import os, sys, time
own = f"/shared/run-{os.environ['SLURM_JOB_ID']}/own-{os.environ['SLURM_PROCID']}"
with open(own, "a") as log, open(own + "-place", "w+b") as place:
    for number in range(int(sys.argv[1])):
        print(number, file=log, flush=True)
        place.seek(0)
        place.write(f"{number:6}".encode())
        place.flush()
        time.sleep(0.25)
"""


def test_a_script_whose_node_dies_goes_on_with_its_steps(cluster):
    """Sruns beside each other, of which one writes into a pipe, one into files of its own and one, with the script, into the job's output
    file, and another after them: all of one cut."""
    cluster.controller.run(["sh", "-c", "printf %s \"$1\" > /shared/files.py", "sh", FILES])
    job = submit(cluster, *LONG, f"({count('piped', '--exact --mem=100 -n1')} | tee tee >/dev/null) &", f"{count('filed', '--exact --mem=100 -n1')} > file &", f"srun --overlap --mem=100 -n2 python3 /shared/files.py {NUMBERS} &",
                 f"{count('shown', '--overlap --mem=100 -n1')} &", f"for number in $(seq 0 {NUMBERS - 1}); do echo own 0 $number; sleep 0.25; done &",
                 "wait", "echo after >&7", count("last", "-n1", 5) + " > last", "echo over", options=("-N1", "-n2", SELDOM))
    for name, text in (("tee", " 0 20\n"), ("file", " 0 20\n"), ("own-1", "20\n")):
        wait_for(lambda name=name, text=text: has(cluster, job, name, text), PATIENCE, f"{name}:\n{output(cluster, job)}")
    first = until_saved(cluster, job)
    until_saved(cluster, job, first)
    wait_more(cluster, job)
    lose_node(cluster, job)
    wait_end(cluster, job)
    assert "begins anew" not in output(cluster, job), output(cluster, job)
    assert sorted(lines(cluster, job)) == sorted([*counted("shown", numbers=NUMBERS), *counted("own", numbers=NUMBERS), "over"]), output(cluster, job)
    once(shared(cluster, job, "tee"), "piped")
    once(shared(cluster, job, "file"), "filed")
    once(shared(cluster, job, "last"), "last", 5)
    for rank in range(2):
        assert shared(cluster, job, f"own-{rank}").splitlines() == [str(n) for n in range(NUMBERS)]
        assert shared(cluster, job, f"own-{rank}-place") == f"{NUMBERS - 1:6}"
    assert shared(cluster, job, "seven") == "before\nafter\n"


def test_a_step_on_other_hosts_is_saved_with_its_script(cluster):
    """One whose first host is not the script's, and one on both. It is asked for, and all runs on."""
    job = submit(cluster, *LONG, f"{count('there', '--exact --mem=100 -N1 -n1 -r1')} > there &", f"{count('both', '--exact --mem=100 -N2 -n2')} > both &", "wait", "echo over",
                 options=("-N2", "--ntasks-per-node=2", "--singularity-checkpoint-every=off"))
    for name in ("there", "both"):
        wait_for(lambda name=name: has(cluster, job, name, " 0 5\n"), PATIENCE, f"{name}:\n{output(cluster, job)}")
    cluster.slurm("singularityctl", "checkpoint", str(job))
    steps = stored(cluster, job)
    assert len(steps) == 2 and len(stored(cluster, job, "batch")) == 1
    for name in ("there", "both"):
        wait_for(lambda name=name: has(cluster, job, name, " 0 50\n"), PATIENCE, f"{name}:\n{output(cluster, job)}")
    # What only the image before names goes when there is another.
    cluster.slurm("singularityctl", "checkpoint", str(job))
    wait_for(lambda: len(stored(cluster, job)) == 2 and not set(stored(cluster, job)) & set(steps), PATIENCE, f"the old ones of {steps} to go")
    requeue(cluster, job)
    wait_end(cluster, job)
    assert lines(cluster, job) == ["over"], output(cluster, job)
    once(shared(cluster, job, "there"), "there")
    once(shared(cluster, job, "both"), "both", ranks=2)
    assert_clean(cluster)


def test_steps_that_end_and_begin_while_they_are_saved(cluster):
    """Short ones, one after the other beside a long one: each ends as it would, and none runs twice."""
    job = submit(cluster, *LONG, f"{count('long', '--exact --mem=100 -n1')} > long &",
                 "for n in $(seq 60); do srun --exact --mem=100 -n1 sh -c \"echo short $n; exit $((n % 3))\" || echo failed $n; done > short", "wait", "echo over",
                 options=("-N1", "-n2", EVERY))
    wait_end(cluster, job)
    assert lines(cluster, job) == ["over"], output(cluster, job)
    expected = [line for n in range(1, 61) for line in [f"short {n}"] + [f"failed {n}"] * (n % 3 != 0)]
    assert shared(cluster, job, "short").splitlines() == expected
    once(shared(cluster, job, "long"), "long")
    assert_clean(cluster)
    assert re.search(rf"-s{job}-batch: saved in", "".join(agent_log(cluster, host.name) for host in cluster.nodes)), output(cluster, job)


def test_a_step_that_cannot_be_saved_keeps_all_running(cluster):
    """It is said once, with the reason."""
    job = submit(cluster, *LONG, f"{count('other', '--exact --mem=100 -n1')} > other &",
                 "srun --exact --mem=100 -n1 --singularity-off sh -c 'echo step; until [ -e /shared/ends ]; do sleep 0.1; done'", "wait", "echo over", options=("-N1", "-n2", EVERY))
    said = "singularity-task: no checkpoint is made now: "
    wait_for(lambda: said in output(cluster, job), PATIENCE, output(cluster, job))
    wait_for(lambda: has(cluster, job, "other", " 0 40\n"), PATIENCE, output(cluster, job))
    assert not stored(cluster, job, "batch")
    cluster.controller.run("touch /shared/ends")
    wait_end(cluster, job)
    assert output(cluster, job).count(said) == 1
    assert lines(cluster, job) == ["step", "over"], output(cluster, job)
    once(shared(cluster, job, "other"), "other")


def test_a_step_that_cannot_be_saved_leaves_no_images_of_the_others(cluster):
    """Of one that has been saved before another has failed: all run on after it, so it is of no use."""
    job = submit(cluster, *LONG, f"{count('good', '--exact --mem=100 -n1')} > good &",
                 "srun --exact --mem=100 -n1 unshare -Ur sh -c 'echo step; until [ -e /shared/bad-ends ]; do sleep 0.1; done' > bad &", "wait", "echo over",
                 options=("-N1", "-n2", "--singularity-checkpoint-every=off"))
    for name, text in (("good", " 0 5\n"), ("bad", "step\n")):
        wait_for(lambda name=name, text=text: has(cluster, job, name, text), PATIENCE, f"{name}:\n{output(cluster, job)}")
    for _ in range(3):
        assert checkpoint(cluster, job).returncode != 0
    saved = "".join(agent_log(cluster, host.name) for host in cluster.nodes).count(": saved in")
    assert saved >= 2, "the good one is saved before the other fails"
    wait_for(lambda: not stored(cluster, job), PATIENCE, f"the images of job {job} to go")
    cluster.controller.run("touch /shared/bad-ends")
    wait_end(cluster, job)
    assert [line for line in lines(cluster, job) if not line.startswith("singularity-task:")] == ["over"], output(cluster, job)
    once(shared(cluster, job, "good"), "good")


def test_a_stopped_srun_does_not_hold_up_a_checkpoint_for_ever(cluster):
    """Its step has ended for it by then, and goes on from its image when srun does."""
    until = "until [ -e {} ]; do sleep 0.1; done"
    job = submit(cluster, *LONG, f"{count('held', '--exact --mem=100 -n1')} > held & srun=$!", until.format("stop"), "kill -STOP $srun", "touch stopped", until.format("go"), "kill -CONT $srun",
                 "wait", "echo over", options=("-N1", "-n1", "--singularity-checkpoint-every=off"))
    wait_for(lambda: has(cluster, job, "held", " 0 5\n"), PATIENCE, output(cluster, job))
    cluster.controller.run(f"cd /shared/run-{job}; touch stop; until [ -e stopped ]; do sleep 0.1; done")
    assert checkpoint(cluster, job).returncode != 0
    assert "srun in it has not hung up within 20 s" in output(cluster, job)
    cluster.controller.run(f"touch /shared/run-{job}/go")
    wait_for(lambda: has(cluster, job, "held", " 0 30\n"), PATIENCE, output(cluster, job))
    saved = checkpoint(cluster, job)
    assert saved.returncode == 0, saved.stderr
    wait_end(cluster, job)
    assert lines(cluster, job)[-1:] == ["over"], output(cluster, job)
    once(shared(cluster, job, "held"), "held")


def test_a_requeue_while_steps_are_saved_saves_them_once_more(cluster):
    """One stands still already, for the script's image, and the other is being saved: neither image is one after which its step has ended."""
    job = submit(cluster, *LONG, f"{count('here', '--exact --mem=100 -N1 -n1')} > here &", f"{count('there', '--exact --mem=100 -N1 -n1 -r1')} > there &", "wait", "echo over",
                 options=("-N2", "--ntasks-per-node=1", "--singularity-checkpoint-every=off"))
    for name in ("here", "there"):
        wait_for(lambda name=name: has(cluster, job, name, " 0 5\n"), PATIENCE, f"{name}:\n{output(cluster, job)}")
    other = next(host.name for host in cluster.nodes if host.name != cluster.job(job)["BatchHost"])
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(checkpoint, cluster, job)
        go_on = stop_worker(cluster, other)
        wait_for(lambda: len(stored(cluster, job)) == 1, PATIENCE, "the step that is here to be saved")
        requeue(cluster, job)
        told = rf"-s{job}-\d{{10}}: Slurm runs its job again later"
        wait_for(lambda: all(re.search(told, agent_log(cluster, host.name)) for host in cluster.nodes), PATIENCE, "both steps to hear of it")
        go_on()
        asked.result()
    wait_end(cluster, job)
    assert cluster.job(job)["Restarts"] == "1"
    assert [line for line in lines(cluster, job) if not line.startswith("singularity-task:")] == ["over"], output(cluster, job)
    assert "is lost" not in output(cluster, job) and "anew" not in output(cluster, job), output(cluster, job)
    once(shared(cluster, job, "here"), "here")
    once(shared(cluster, job, "there"), "there")


@pytest.mark.parametrize("who", ["worker", "agent"])
def test_a_death_while_they_are_saved_leaves_one_set(cluster, who):
    """kill -9, again and again: all runs on, or goes on from one cut of script and steps."""
    job = submit(cluster, *LONG, f"({count('piped', '--exact --mem=100 -n1')} | tee tee >/dev/null) &", f"{count('filed', '--exact --mem=100 -n1')} > file &", "wait", "echo over",
                 options=("-N1", "-n2", EVERY))
    wait_for(lambda: has(cluster, job, "tee", " 0 5\n"), PATIENCE, output(cluster, job))
    until_saved(cluster, job)
    host = node_of(cluster, job)
    for _ in range(4):
        stop_worker(cluster, host)
        if who == "worker":
            cluster.host(host).run("kill -KILL $(grep -l '^singularity-wor' /proc/[0-9]*/comm | cut -d/ -f3)", check=False)
        else:
            cluster.stop_daemon(host, "singularityd", "KILL")
            cluster.host(host).run("kill -CONT $(grep -l '^singularity-wor' /proc/[0-9]*/comm | cut -d/ -f3)", check=False)
            cluster.start_agents(host)
    lose_node(cluster, job)
    wait_end(cluster, job)
    assert "does not run here" not in output(cluster, job)
    assert [line for line in lines(cluster, job) if not line.startswith("singularity-task:")][-1:] == ["over"], output(cluster, job)
    once(shared(cluster, job, "tee"), "piped")
    once(shared(cluster, job, "file"), "filed")


def test_input_comes_once_while_checkpoints_are_made(cluster):
    """From a pipe, a file and a here-document, to ranks that read slowly and add to what they read in a file of their script's."""
    srun = "srun --overlap --mem=100"
    slow = shlex.quote("while read -r line; do echo $SLURM_PROCID got $line; sleep 0.2; done; echo $SLURM_PROCID over")
    job = submit(cluster, *LONG, "numbers=$(seq 0 149); echo \"$numbers\" > numbers", f"seq 0 149 | {srun} -n2 sh -c {slow} > pipe &",
                 f"{srun} -n1 sh -c {slow} < numbers > file &", f"{srun} -n1 sh -c {slow} <<< \"$numbers\" > here &", "wait", "echo over", options=("-N1", "-n2", SELDOM))
    for name in ("pipe", "file", "here"):
        wait_for(lambda name=name: has(cluster, job, name, "got 20\n"), PATIENCE, f"{name} to be read:\n{output(cluster, job)}")
    until_saved(cluster, job, until_saved(cluster, job))
    lose_node(cluster, job)
    wait_end(cluster, job)
    assert lines(cluster, job) == ["over"], output(cluster, job)
    expected = [f"0 got {n}" for n in range(NUMBERS)] + ["0 over"]
    for name in ("file", "here"):
        assert shared(cluster, job, name).splitlines() == expected, name
    for rank in range(2):
        assert [line for line in shared(cluster, job, "pipe").splitlines() if line.startswith(f"{rank} ")] == [f"{rank}{line[1:]}" for line in expected]
