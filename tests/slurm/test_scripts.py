# SPDX-License-Identifier: GPL-2.0-or-later
"""Batch scripts that are saved themselves (--singularity-save-script), with what they have started without srun; Slurm's commands in
them and in tasks."""

import re
import shlex

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean
from test_lifecycle import EVERY, HELD, OFTEN, output, requeue, script
from test_lifecycle_moves import SOON
from virtualcluster.errors import wait_for

STEPS = 40


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, SOON + "  check_after: 1s\n", nodes=2, conf=TIME_TO_SAVE) as made:
        made.controller.run(["sh", "-c", "printf %s \"$1\" > /shared/count.py", "sh", COUNT])
        yield made
        assert_clean(made)


def submit(cluster, *lines, options=("-N1", "-n1")):
    return cluster.submit(ELASTIC, "--singularity-save-script", *options, script=script(*lines))


def lines(cluster, job):
    """The job's output without what Slurm says itself, as on any requeue, and what keeps it from being saved."""
    return [line for line in output(cluster, job).splitlines()
            if not line.startswith(("slurmstepd-", "srun: ", "singularity-task: cannot save", "singularity-task: no checkpoint is made"))]


def wait_output(cluster, job, pattern):
    wait_for(lambda: re.search(pattern, output(cluster, job), re.MULTILINE), PATIENCE,
             f"{pattern!r} in the output of job {job}")


def node_of(cluster, job):
    return cluster.slurm("squeue", "-h", "-j", str(job), "-o", "%N")


def disturb(cluster, job, how):
    """Requeues it, or has it go on on the other node, and waits until it runs there again."""
    before, runs = node_of(cluster, job), int(cluster.job(job)["Restarts"])
    if how == "requeued":
        requeue(cluster, job)
    else:
        cluster.slurm("singularityctl", "migrate", str(job))
    wait_for(lambda: cluster.job(job)["JobState"] == "RUNNING" and int(cluster.job(job)["Restarts"]) > runs, PATIENCE,
             f"job {job} to run again")
    assert how == "requeued" or node_of(cluster, job) != before


# What a second run of the script would show: mkdir fails, lines come twice. A shell's state goes on: variables, options, a
# trap, a descriptor, a process in the background, a pipe, a here-document that is being read.
SHELL = (
    "set -eu",
    "mkdir /shared/run-$SLURM_JOB_ID",
    "trap 'echo ended with $?' EXIT",
    "exec 7>/shared/run-$SLURM_JOB_ID/seven",
    "mine=42",
    "(until [ -e /shared/go-$SLURM_JOB_ID ]; do sleep 0.1; done; echo from behind; exit 3) & behind=$!",
    f"python3 -c 'import time\nfor n in range({STEPS}): print(\"step\", n, flush=True); time.sleep(0.25)' | tee /shared/run-$SLURM_JOB_ID/tee",
    "while read -r word; do echo \"$word $mine\"; done <<< $'alpha\\nbeta'",
    "echo seven >&7",
    "touch /shared/go-$SLURM_JOB_ID",
    "wait $behind || echo behind ended with $?",
    "echo \"run ${SLURM_RESTART_COUNT:-0} as $0\"",
)


DISTURBED = pytest.mark.parametrize("how", [(), ("requeued",), ("requeued", "moved")], ids=["undisturbed", "requeued", "moved"])


def assert_goes_on_in_its_line(cluster, job, how):
    """One of SHELL."""
    for turn, what in enumerate(how):
        wait_output(cluster, job, f"^step {5 + 10 * turn}$")
        disturb(cluster, job, what)
    cluster.wait_job(job)
    shown = lines(cluster, job)
    steps = [f"step {n}" for n in range(STEPS)]
    assert shown[:-6] == steps, output(cluster, job)
    assert sorted(shown[-6:]) == sorted(["alpha 42", "beta 42", "from behind", "behind ended with 3", shown[-2], "ended with 0"])
    assert re.fullmatch(r"run 0 as .*/slurm_script", shown[-2])
    for name, text in (("tee", "\n".join(steps) + "\n"), ("seven", "seven\n")):
        assert cluster.controller.run(["cat", f"/shared/run-{job}/{name}"]).stdout == text


@DISTURBED
def test_a_script_without_srun_goes_on_in_its_line(cluster, how):
    assert_goes_on_in_its_line(cluster, submit(cluster, *SHELL), how)


def test_slurms_commands_work_in_the_script(cluster):
    job = submit(cluster,
                 "squeue -h -j $SLURM_JOB_ID -o 'state %T'",
                 "echo in | srun --input=0 sh -c 'read word; echo $word out $SLURM_JOB_ID; exit 5'; echo srun $?",
                 "(srun sh -c 'touch /shared/runs-$SLURM_JOB_ID; exec sleep 1000' & pid=$!; "
                 "until [ -e /shared/runs-$SLURM_JOB_ID ]; do sleep 0.1; done; kill -INT $pid; sleep 0.2; kill -INT $pid; wait $pid; echo interrupted $?) 2>/dev/null",
                 "sbatch --version | cut -d' ' -f1",
                 "for n in 1 2 3 4 5 6; do scontrol show job $SLURM_JOB_ID | grep -c JobState & done; wait")
    cluster.wait_job(job)
    shown = lines(cluster, job)
    assert shown[:3] == ["state RUNNING", f"in out {job}", "srun 5"], output(cluster, job)
    assert "interrupted 130" in shown
    assert "slurm-wlm" in shown and shown[-6:] == ["1"] * 6


# Its state is in its memory alone.
COUNT = """
import os, sys, time
for number in range(int(sys.argv[2])):
    print(sys.argv[1], os.environ["SLURM_PROCID"], number, flush=True)
    time.sleep(0.25)
"""


def counts(name, options=""):
    return f"srun {options} python3 /shared/count.py {name} {STEPS}"


def counted(name, ranks=1, numbers=STEPS):
    return sorted(f"{name} {rank} {n}" for rank in range(ranks) for n in range(numbers))


def shared(cluster, job, name):
    return cluster.controller.run(["cat", f"/shared/run-{job}/{name}"]).stdout


def has(cluster, job, name, text):
    return text in cluster.controller.run(["cat", f"/shared/run-{job}/{name}"], check=False).stdout


# A second run of the script, of a step, or of a line of either would be seen.
@pytest.mark.parametrize("how", [(), ("requeued",), ("requeued", "moved", "requeued")], ids=["undisturbed", "requeued", "again and again"])
def test_a_script_goes_on_with_its_steps(cluster, how):
    job = submit(cluster, "set -eu", "mkdir /shared/run-$SLURM_JOB_ID", "cd /shared/run-$SLURM_JOB_ID",
                 counts("first", "-n2"),
                 counts("second", "-n1") + " | tee tee | (mine=$(cat); echo \"$mine\" | wc -l)",
                 counts("third", "-n1") + " > file",
                 "srun -n1 sh -c 'exit 7' || echo ended with $?",
                 options=("-N1", "-n2"))
    for turn, what in enumerate(how):
        if turn == 0:
            wait_output(cluster, job, "^first 0 5$")
        else:
            wait_for(lambda turn=turn: has(cluster, job, ("tee", "file")[turn - 1], " 0 5"), PATIENCE, f"step {turn}")
        disturb(cluster, job, what)
    cluster.wait_job(job, seconds=PATIENCE)
    shown = lines(cluster, job)
    assert sorted(shown[:-2]) == counted("first", ranks=2), output(cluster, job)
    assert shown[-2:] == [str(STEPS), "ended with 7"], output(cluster, job)
    for name, text in (("tee", "second"), ("file", "third")):
        assert shared(cluster, job, name) == "".join(f"{text} 0 {n}\n" for n in range(STEPS))


def test_steps_beside_each_other_go_on_each_in_its_own_file(cluster):
    """More than can run at once: those that wait have not begun, and begin later."""
    job = submit(cluster, "cd /shared; mkdir run-$SLURM_JOB_ID", "for i in 1 2 3 4; do",
                 counts("step-$i", "--exact --mem=100 -n1 -o run-$SLURM_JOB_ID/$i") + " & pids+=($!)",
                 "done", "for pid in ${pids[@]}; do wait $pid; echo $?; done", options=("-N1", "-n2"))
    wait_for(lambda: sum(has(cluster, job, str(i), " 0 5") for i in range(1, 5)) == 2, PATIENCE, "two steps to run")
    disturb(cluster, job, "requeued")
    cluster.wait_job(job, seconds=PATIENCE)
    assert lines(cluster, job) == ["0"] * 4, output(cluster, job)
    for i in range(1, 5):
        text = [line for line in shared(cluster, job, str(i)).splitlines() if not line.startswith("slurmstepd-")]
        assert text == [f"step-{i} 0 {n}" for n in range(STEPS)], output(cluster, job)


def test_signals_and_ends_pass_after_a_restore(cluster):
    """Also a signal that comes when there is no srun."""
    job = submit(cluster, "srun sh -c 'trap \"echo told; exit 9\" USR1; echo step; while :; do sleep 0.1; done' & pid=$!",
                 "until [ -e /shared/signal-$SLURM_JOB_ID ]; do sleep 0.1; done", "kill -USR1 $pid", "wait $pid; echo ended with $?")
    wait_output(cluster, job, "^step$")
    disturb(cluster, job, "requeued")
    cluster.controller.run(f"touch /shared/signal-{job}")
    cluster.wait_job(job, seconds=PATIENCE)
    assert lines(cluster, job) == ["step", "told", "ended with 9"], output(cluster, job)


NUMBERS = 150
# Each byte is a call: nothing is read before it is used. The end of the input is seen, or is not waited for.
SLOW = "while read -r line; do echo $SLURM_PROCID got $line; sleep 0.1; done; echo $SLURM_PROCID over"
PART = "n=0; while [ $n -lt 50 ]; do read -r line; echo got $line; sleep 0.2; n=$((n + 1)); done; echo over"
# More than all that is between the script and the program can hold.
WRITE = "import sys\nfor n in range(4000000): sys.stdout.write(f'{n:07}\\n')"
READ = """
import sys, time
n, rest = 0, b""
print("reads", flush=True)
while block := sys.stdin.buffer.read1(400000):
    rest += block
    whole = len(rest) - len(rest) % 8
    for line in rest[:whole].split():
        assert int(line) == n, (line, n)
        n += 1
    rest = rest[whole:]
    time.sleep(0.05)
print("read", n, rest)
"""


@pytest.mark.parametrize("how", [(), ("requeued", "moved")], ids=["undisturbed", "disturbed"])
def test_input_of_steps_comes_once(cluster, how):
    """From pipes, files and here-documents, to ranks that read slowly, of which one reads a part only."""
    srun = "srun --overlap --mem=100"
    job = submit(cluster, "mkdir /shared/run-$SLURM_JOB_ID; cd /shared/run-$SLURM_JOB_ID; numbers=$(seq 0 149); echo \"$numbers\" > numbers",
                 f"seq 0 149 | {srun} -n2 sh -c {shlex.quote(SLOW)} > pipe &",
                 f"{srun} -n1 sh -c {shlex.quote(SLOW)} < numbers > file &",
                 f"{srun} -n1 sh -c {shlex.quote(SLOW)} <<< \"$numbers\" > here &",
                 f"(for n in $numbers; do echo $n; sleep 0.1; done) | {srun} -n1 sh -c {shlex.quote(SLOW)} > trickle &",
                 f"seq 0 149 | {srun} -n1 sh -c {shlex.quote(PART)} > part &",
                 f"python3 -c {shlex.quote(WRITE)} | {srun} -n1 python3 -c {shlex.quote(READ)} > much &",
                 "wait; echo over", options=("-N1", "-n2"))
    for turn, what in enumerate(how):
        for name in ("pipe", "file", "here", "trickle", "part"):
            wait_for(lambda name=name, turn=turn: has(cluster, job, name, f"got {10 + 20 * turn}\n"), PATIENCE, f"{name} to be read")
        wait_for(lambda: has(cluster, job, "much", "reads"), PATIENCE, "much to be read")
        disturb(cluster, job, what)
    cluster.wait_job(job, seconds=PATIENCE)
    assert lines(cluster, job) == ["over"], output(cluster, job)
    expected = [f"0 got {n}" for n in range(NUMBERS)] + ["0 over"]
    for name in ("file", "trickle"):
        assert shared(cluster, job, name).splitlines() == expected, name
    assert shared(cluster, job, "here").splitlines() == expected, "here"
    for rank in range(2):
        assert [line for line in shared(cluster, job, "pipe").splitlines() if line.startswith(f"{rank} ")] == [f"{rank}{line[1:]}" for line in expected]
    assert shared(cluster, job, "part").splitlines() == [f"got {n}" for n in range(50)] + ["over"]
    assert shared(cluster, job, "much") == "reads\nread 4000000 b''\n"


def test_input_on_other_hosts_keeps_a_script_from_being_saved(cluster):
    """Nobody there tells the script's host how much of it was read."""
    job = submit(cluster, "echo begins", "(echo in; exec sleep 1000) | srun sh -c 'read word; echo step; exec sleep 1000'", "echo goes on",
                 options=("-N2", "--ntasks-per-node=1"))
    wait_for(lambda: output(cluster, job).count("step\n") == 2, PATIENCE, "both ranks")
    requeue(cluster, job)
    wait_for(lambda: output(cluster, job).count("begins\n") == 2, PATIENCE, "the script to begin anew")
    assert "as of tasks on other hosts than the script's" in output(cluster, job)
    assert "goes on" not in output(cluster, job)
    cluster.slurm("scancel", str(job))


def test_a_step_whose_checkpoint_is_gone_is_not_begun_anew_under_its_script(cluster):
    """The script has seen what the step has done. The job is held, and says why."""
    job = submit(cluster, "echo begins", counts("step"), "echo goes on")
    wait_output(cluster, job, "^step 0 5$")
    cluster.slurm("scontrol", "requeuehold", str(job))
    wait_for(lambda: cluster.job(job)["JobState"] == "PENDING", PATIENCE, "the job to wait")
    host = cluster.host("n1")
    stored = host.run(["singularityctl", "store", "ls"]).stdout
    own = [line.split()[0] for line in stored.splitlines() if re.search(rf"-s{job}-\d{{10}}\s", line)]
    assert own, stored
    for one in own:
        host.run(["singularityctl", "store", "rm", one])
    cluster.slurm("scontrol", "release", str(job))
    wait_for(lambda: cluster.job(job)["Reason"] in HELD and int(cluster.job(job)["Restarts"]) > 1, PATIENCE, f"it to be held: {cluster.job(job)}")
    assert "it cannot go on where it was saved" in cluster.slurm("squeue", "-h", "-j", str(job), "-o", "%k")
    shown = lines(cluster, job)
    assert shown.count("begins") == 1 and shown.count("step 0 0") == 1 and "goes on" not in shown, output(cluster, job)
    cluster.slurm("scancel", str(job))


def test_a_step_that_is_not_elastic_keeps_its_script_from_being_saved(cluster):
    job = submit(cluster, "echo begins", "srun --singularity-off sh -c 'echo step; exec sleep 1000'", "echo goes on")
    wait_output(cluster, job, "^step$")
    requeue(cluster, job)
    wait_for(lambda: output(cluster, job).count("begins\n") == 2, PATIENCE, "the script to begin anew")
    assert "nothing was saved of its step" in output(cluster, job)
    assert "goes on" not in output(cluster, job)
    cluster.slurm("scancel", str(job))


def test_a_script_whose_node_dies_goes_on_from_before_its_srun(release):
    """Where the site has none of running steps periodic checkpoints are made while no srun runs; while one does its user hears once that
    there are none, and what that means."""
    with elastic_up(release, OFTEN + "  save_running_steps: false\n", nodes=2, conf={"SlurmdTimeout": "20", **TIME_TO_SAVE}) as made:
        made.controller.run(["sh", "-c", "printf %s \"$1\" > /shared/count.py", "sh", COUNT])
        job = submit(made, "set -e", "mkdir /shared/run-$SLURM_JOB_ID", "cd /shared/run-$SLURM_JOB_ID", "exec 7> seven",
                     f"for n in $(seq {STEPS}); do echo before $n; echo $n >&7; sleep 0.2; done", counts("step") + " | tee tee", "echo over", "echo over >&7",
                     options=("-N1", "-n1", EVERY))
        said = "^singularity-task: no checkpoint is made now: .*it can be saved only when its step ends with that.* goes on from "
        wait_output(made, job, said)
        wait_for(lambda: has(made, job, "tee", "step 0 20\n"), PATIENCE, "the step")
        assert len(re.findall(said, output(made, job), re.MULTILINE)) == 1, output(made, job)
        assert "\nunsavable: " not in made.slurm("singularityctl", "status", str(job))
        made.kill(node_of(made, job))
        wait_for(lambda: made.job(job)["Restarts"] == "1" and made.job(job)["JobState"] == "RUNNING", PATIENCE, "the job to be run again")
        made.wait_job(job, seconds=PATIENCE)
        shown = lines(made, job)
        assert "begins anew" not in output(made, job), output(made, job)
        assert shown == [*(f"before {n}" for n in range(1, STEPS + 1)), *(f"step 0 {n}" for n in range(STEPS)), "over"], output(made, job)
        # It is open for writing in the checkpoint; the other one was not there.
        assert shared(made, job, "seven").splitlines() == [*map(str, range(1, STEPS + 1)), "over"]
        assert shared(made, job, "tee").splitlines() == [f"step 0 {n}" for n in range(STEPS)]


def test_commands_go_on_working_after_a_restore(cluster):
    job = submit(cluster, "echo begins", "until [ -e /shared/more ]; do sleep 0.1; done",
                 "squeue -h -j $SLURM_JOB_ID -o 'state %T'", "srun -n1 sh -c 'echo restarts $SLURM_RESTART_COUNT'", "echo over")
    wait_output(cluster, job, "^begins$")
    requeue(cluster, job)
    wait_for(lambda: cluster.job(job)["JobState"] == "RUNNING" and cluster.job(job)["Restarts"] == "1", PATIENCE, "the second run")
    cluster.controller.run("touch /shared/more")
    cluster.wait_job(job)
    assert lines(cluster, job) == ["begins", "state RUNNING", "restarts 1", "over"]


def test_commands_work_again_when_a_save_was_refused(cluster):
    """Which keeps nobody from the work: the script goes on as if nobody had asked."""
    job = submit(cluster, "srun --singularity-off sh -c 'echo step; until [ -e /shared/refused ]; do sleep 0.1; done'",
                 "squeue -h -j $SLURM_JOB_ID -o 'state %T'", "echo over")
    wait_output(cluster, job, "^step$")
    refused = cluster.controller.run(["singularityctl", "checkpoint", str(job)], check=False)
    assert refused.returncode != 0 and "the job's output says why" in refused.stderr, refused
    assert "srun runs a step that is not elastic" in output(cluster, job)
    assert "\nunsavable: " not in cluster.slurm("singularityctl", "status", str(job))
    cluster.controller.run("touch /shared/refused")
    cluster.wait_job(job)
    assert lines(cluster, job) == ["step", "state RUNNING", "over"]


# Each rank, before and after what disturbs the job. A loop over what is asked for again and again, as launchers do.
TASK = """
ask() {
    squeue -h -j $SLURM_JOB_ID -o "$1 rank $SLURM_PROCID %T"
    echo "$1 rank $SLURM_PROCID" hosts $(scontrol show hostnames $SLURM_JOB_NODELIST | wc -l) exit $(scontrol show job nonsense >/dev/null 2>&1; echo $?)
}
ask before
until [ -e /shared/asks-$SLURM_JOB_ID ]; do sleep 0.1; done
ask after
[ $SLURM_PROCID != 0 ] || echo sent $(sbatch --parsable -n1 -o /shared/sent.out --singularity-off --wrap "echo sent by $SLURM_JOB_ID")
[ $SLURM_PROCID != 0 ] || srun --overlap --mem=0 -N1 -n1 echo nested $SLURM_JOB_ID
singularityctl status $SLURM_JOB_ID | grep -c "^job: *$SLURM_JOB_ID "
"""


@pytest.mark.parametrize("how", [None, "requeued", "moved", "agents killed"])
def test_slurms_commands_work_in_tasks(cluster, how):
    options = ("-N1", "-n2") if how == "moved" else ("-N2", "--ntasks-per-node=1")
    job = cluster.submit(ELASTIC, *options, script=script(f"srun bash -c {shlex.quote(TASK)}"))
    for rank in range(2):
        wait_output(cluster, job, f"^before rank {rank} hosts")
    if how == "agents killed":
        for host in cluster.nodes:
            cluster.stop_daemon(host.name, "singularityd", "KILL")
            cluster.start_agents(host.name)
    elif how:
        disturb(cluster, job, how)
    cluster.controller.run(f"touch /shared/asks-{job}")
    cluster.wait_job(job)
    shown = lines(cluster, job)
    nodes = 1 if how == "moved" else 2
    expected = [f"{when} rank {rank} {what}" for when in ("before", "after") for rank in range(2)
                for what in ("RUNNING", f"hosts {nodes} exit 1")]
    sent = [line for line in shown if line.startswith("sent ")]
    # Whether the nested step ran before is not known; that nothing was saved of it is said.
    said = [line for line in shown if line.startswith("singularity-task: the step begins anew: cannot find a checkpoint")]
    assert len(said) == (how in ("requeued", "moved")), output(cluster, job)
    assert sorted(shown) == sorted(expected + sent + said + [f"nested {job}", "1", "1"]), output(cluster, job)
    other = int(sent[0].split()[1])
    cluster.wait_job(other)
    assert cluster.controller.run(["cat", "/shared/sent.out"]).stdout == f"sent by {job}\n"


def test_a_command_that_runs_on_keeps_a_step_from_being_saved_and_is_named(cluster):
    nested = "srun --overlap --mem=0 sh -c \"until [ -e /shared/nested-ends ]; do sleep 0.1; done\""
    job = cluster.submit(ELASTIC, "-N1", "-n1", script=script(f"srun sh -c '{nested}; exec sleep 1000'"))
    wait_output(cluster, job, "^singularity-task: .*waits for srun, which runs outside")

    def status():
        return cluster.slurm("singularityctl", "status", str(job))
    wait_for(lambda: "\nunsavable: " in status(), PATIENCE, "status to say that it cannot be saved")
    refused = cluster.controller.run(["singularityctl", "checkpoint", str(job)], check=False)
    assert refused.returncode != 0 and "the job's output says why" in refused.stderr, refused
    cluster.controller.run("touch /shared/nested-ends")
    wait_for(lambda: "\nunsavable: " not in status(), PATIENCE, "nothing to be in the way of a checkpoint any more")
    cluster.slurm("singularityctl", "checkpoint", str(job))
    cluster.slurm("scancel", str(job))


def test_no_work_of_a_failure_is_saved(cluster):
    """Slurm ends the step that a task has begun together with the task's own, which must not go on from that."""
    job = cluster.submit(ELASTIC, "-N1", "-n1", script=script(
        "srun sh -c 'echo begins; srun --singularity-off --overlap --mem=0 sh -c \"echo nested; exec sleep 1000\"; echo fails; sleep 1000'"))
    wait_output(cluster, job, "^nested$")
    requeue(cluster, job)
    wait_for(lambda: output(cluster, job).count("begins\n") == 2, PATIENCE, "the step to begin anew")
    assert "fails" not in output(cluster, job) # it is told to end, and not of the end of its step
    cluster.slurm("scancel", str(job))


def test_only_elastic_jobs_have_their_scripts_saved(cluster):
    refused = cluster.controller.run(["sbatch", "--singularity-save-script", "--wrap", "true"], user="alice", check=False)
    assert refused.returncode != 0 and "add --singularity-elastic" in refused.stderr


def test_a_site_can_have_all_scripts_saved(release):
    """But for those of users who do not want that."""
    with elastic_up(release, SOON + "  save_scripts: true\n", nodes=1, conf=TIME_TO_SAVE) as made:
        for option, begins in ((), 1), (("--singularity-no-save-script",), 2):
            job = made.submit(ELASTIC, *option, "-N1", "-n1",
                              script=script("echo begins", "until [ -e /shared/go-$SLURM_JOB_ID ]; do sleep 0.1; done", "echo over"))
            wait_output(made, job, "^begins$")
            disturb(made, job, "requeued")
            made.controller.run(f"touch /shared/go-{job}")
            made.wait_job(job, seconds=PATIENCE)
            assert lines(made, job) == ["begins"] * begins + ["over"], output(made, job)
