# SPDX-License-Identifier: GPL-2.0-or-later
"""Batch scripts of jobs that say nothing about them: saved as they are until they begin an srun, and run again from their first line after
that, with steps that go on."""

import re

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean
from test_files import find
from test_lifecycle import EVERY, NEVER, OFTEN, output, requeue, script
from test_scripts import COUNT, DISTURBED, SHELL, STEPS, assert_goes_on_in_its_line, counted, counts, disturb, lines, node_of, wait_output
from test_scripts_running import lose_node, stored
from virtualcluster.errors import wait_for


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, OFTEN + "  look_every: 1s\n", nodes=2, conf=TIME_TO_SAVE) as made:
        made.controller.run(["sh", "-c", "printf %s \"$1\" > /shared/count.py", "sh", COUNT])
        yield made
        assert_clean(made)


def submit(cluster, *of_script, options=("-N1", "-n1", NEVER)):
    return cluster.submit(ELASTIC, *options, script=script(*of_script))


def counted_in_order(name):
    return [f"{name} 0 {n}" for n in range(STEPS)]


@DISTURBED
def test_a_script_without_srun_goes_on_in_its_line(cluster, how):
    assert_goes_on_in_its_line(cluster, submit(cluster, *SHELL), how)


def test_wrapped_commands_go_on(cluster):
    """Of sbatch --wrap, with Slurm's other commands in them."""
    job = int(cluster.controller.run(["sbatch", "--parsable", ELASTIC, NEVER, "-N1", "-n1", "-o", "/shared/slurm-%j.out", "--wrap",
                                      f"squeue -h -j $SLURM_JOB_ID -o %T; python3 /shared/count.py wrapped {STEPS}"], user="alice").stdout)
    wait_output(cluster, job, "^wrapped 0 5$")
    requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    assert lines(cluster, job) == ["RUNNING", *counted_in_order("wrapped")], output(cluster, job)


def test_a_script_that_has_begun_an_srun_runs_again(cluster):
    """Its step goes on; what it does before, and behind, is done as in any second run."""
    job = submit(cluster, "echo run ${SLURM_RESTART_COUNT:-0}", "seq 3 | srun cat", counts("counted"), "echo over")
    wait_output(cluster, job, "^counted 0 5$")
    requeue(cluster, job)
    wait_output(cluster, job, "^counted 0 15$")
    disturb(cluster, job, "moved")
    cluster.wait_job(job, seconds=PATIENCE)
    assert sorted(lines(cluster, job)) == sorted(["run 0", "run 1", "run 2", "1", "2", "3", *counted("counted"), "over"]), output(cluster, job)
    assert "singularity-task" not in output(cluster, job), output(cluster, job)


def test_the_script_stands_still_while_its_step_is_saved(cluster):
    """What it waits for comes just then: it is seen in the next run."""
    job = submit(cluster, "echo run ${SLURM_RESTART_COUNT:-0}", counts("counted") + " &", "until [ -e /shared/go-$SLURM_JOB_ID ]; do sleep 0.01; done", "echo seen",
                 "wait", "echo over")
    wait_output(cluster, job, "^counted 0 5$")
    requeue(cluster, job)
    cluster.controller.run(["touch", f"/shared/go-{job}"])
    cluster.wait_job(job, seconds=PATIENCE)
    shown = lines(cluster, job)
    assert sorted(shown) == sorted(["run 0", "run 1", "seen", *counted("counted"), "over"]), output(cluster, job)
    assert shown.index("seen") > shown.index("run 1"), output(cluster, job)


def run_on_another_node(cluster, job):
    """Its own dies, and comes again when the job has ended."""
    host = node_of(cluster, job)
    lose_node(cluster, job)
    cluster.wait_job(job, seconds=3 * PATIENCE)
    find(cluster, host)


def test_nothing_of_a_script_stays_saved_once_it_has_begun_an_srun(cluster):
    """A checkpoint from before its first srun would go on beside a step that has gone on without it."""
    job = submit(cluster, "echo begins", "until [ -e /shared/go-$SLURM_JOB_ID ]; do sleep 0.1; done", "exec >> /shared/log-$SLURM_JOB_ID", counts("counted"),
                 "echo over", options=("-N1", "-n1", EVERY))
    wait_for(lambda: stored(cluster, job, "batch"), PATIENCE, "a checkpoint of the script")
    cluster.controller.run(["touch", f"/shared/go-{job}"])
    wait_for(lambda: stored(cluster, job, "0"), PATIENCE, "a checkpoint of its step")
    assert not stored(cluster, job, "batch")
    run_on_another_node(cluster, job)
    assert lines(cluster, job) == ["begins", "begins"], output(cluster, job)
    log = cluster.controller.run(["cat", f"/shared/log-{job}"]).stdout.splitlines()
    # What the step has written since its last checkpoint comes again.
    assert list(dict.fromkeys(log)) == [*counted_in_order("counted"), "over"], log


def test_a_script_whose_node_dies_goes_on(cluster):
    job = submit(cluster, f"python3 /shared/count.py counted {STEPS}", "echo over", options=("-N1", "-n1", EVERY))
    wait_output(cluster, job, "^counted 0 10$")
    first = wait_for(lambda: stored(cluster, job, "batch"), PATIENCE, "a checkpoint")
    wait_for(lambda: set(stored(cluster, job, "batch")) - set(first), PATIENCE, "another")
    run_on_another_node(cluster, job)
    assert lines(cluster, job) == [*counted_in_order("counted"), "over"], output(cluster, job)


def test_an_agent_that_comes_again_knows_what_becomes_of_the_script(cluster):
    job = submit(cluster, "echo run ${SLURM_RESTART_COUNT:-0}", counts("counted"), "echo over", options=("-N1", "-n1", "-w", "n1", NEVER))
    wait_output(cluster, job, "^counted 0 5$")
    cluster.stop_daemon("n1", "singularityd", "KILL")
    cluster.start_agents("n1")
    wait_output(cluster, job, "^counted 0 10$")
    requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    assert sorted(lines(cluster, job)) == sorted(["run 0", "run 1", *counted("counted"), "over"]), output(cluster, job)


def test_checkpoints_that_are_asked_for(cluster):
    """Of the step where one runs; the script itself has none any more between its steps."""
    job = submit(cluster, counts("counted"), "echo between", "until [ -e /shared/go-$SLURM_JOB_ID ]; do sleep 0.1; done")
    wait_output(cluster, job, "^counted 0 5$")
    cluster.slurm("singularityctl", "checkpoint", str(job))
    assert len(stored(cluster, job, "0")) == 1 and not stored(cluster, job, "batch")
    wait_output(cluster, job, "^between$")
    refused = cluster.controller.run(["singularityctl", "checkpoint", str(job)], check=False, timeout=2 * PATIENCE)
    assert refused.returncode != 0 and "runs again from its first line" in refused.stderr, refused.stderr
    cluster.controller.run(["touch", f"/shared/go-{job}"])
    cluster.wait_job(job, seconds=PATIENCE)


def test_a_cancelled_script_hears_it(cluster):
    """Once it has begun an srun, as before."""
    for begun in ("true", "srun true"):
        job = submit(cluster, "trap 'echo told; exit 3' TERM", begun, "echo waits", "while sleep 0.1; do :; done")
        wait_output(cluster, job, "^waits$")
        cluster.slurm("scancel", "--signal=TERM", "--batch", str(job))
        wait_output(cluster, job, "^told$")
        wait_for(lambda job=job: cluster.job(job)["JobState"] == "FAILED", PATIENCE, "the job to end")


def test_sruns_of_a_task_have_their_input(cluster):
    """Through a pipe, of the task or of what it has started."""
    job = submit(cluster, "srun sh -c 'seq 5 | srun --overlap --mem=0 --input=0 cat; echo five | srun --overlap --mem=0 cat'")
    cluster.wait_job(job, seconds=PATIENCE)
    assert re.findall(r"^\d|five$", output(cluster, job), re.MULTILINE) == ["1", "2", "3", "4", "5", "five"], output(cluster, job)
