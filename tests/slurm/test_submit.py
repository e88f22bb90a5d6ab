# SPDX-License-Identifier: GPL-2.0-or-later
"""job_submit/singularity in slurmctld: what elastic jobs get, what is refused, and that others pass as they are."""

import pytest
import scenarios
from virtualcluster.errors import wait_for

HOLD = "--hold"


def sbatch(cluster, *options, script=None):
    answer = cluster.controller.run(["sbatch", "--parsable", HOLD, *options, *([] if script else ["--wrap=true"])], user="alice",
                                    check=False, directory="/shared", stdin=script)
    return answer, (int(answer.stdout.strip()) if answer.returncode == 0 else None)


def accepted(cluster, *options, words=(), script=None):
    """What slurmctld has of the job, which is then gone; sbatch has shown the words, and none if there are none."""
    answer, job = sbatch(cluster, *options, script=script)
    assert answer.returncode == 0, answer.stderr
    assert ("singularity: " in answer.stderr) == bool(words)
    for word in words:
        assert word in answer.stderr
    record = cluster.job(job)
    cluster.slurm("scancel", str(job))
    return record


def refused(cluster, *options, words, script=None):
    answer, job = sbatch(cluster, *options, script=script)
    assert job is None
    for word in words:
        assert word in answer.stderr


def queue(cluster):
    return cluster.slurm("squeue", "-h", "-t", "all", "-o", "%i").split()


def test_the_plugin_is_in_use(ours):
    assert "singularity" in next(line for line in ours.slurm("scontrol", "show", "config").splitlines() if line.startswith("JobSubmitPlugins"))


@pytest.fixture(params=["0", "1"])
def job_requeue(request, ours):
    """JobRequeue of slurm.conf, which is the default for jobs that say nothing."""
    before = ours.spec.conf.get("JobRequeue")
    ours.write_conf(JobRequeue=request.param)
    ours.slurm("scontrol", "reconfigure")
    ours.wait_controller()
    wait_for(lambda: f"JobRequeue              = {request.param}" in ours.slurm("scontrol", "show", "config"), 20, "JobRequeue to be in force")
    yield request.param
    ours.write_conf(JobRequeue=before)
    ours.slurm("scontrol", "reconfigure")
    ours.wait_nodes()


def test_elastic_jobs_are_requeued_whatever_the_default(ours, job_requeue):
    assert accepted(ours)["Requeue"] == job_requeue
    for options in (["--singularity-elastic"], ["--singularity-elastic=2-8"], ["--singularity-elastic", "--requeue"],
                    ["--singularity-elastic", "--export=NONE"]):
        assert accepted(ours, *options)["Requeue"] == "1"
    script = "#!/bin/sh\n#SBATCH --singularity-elastic=2-8\ntrue\n"
    assert accepted(ours, script=script)["Requeue"] == "1"
    assert accepted(ours, "--singularity-off", script=script)["Requeue"] == job_requeue


def test_the_range_is_noted(ours):
    """For the planner, before the job has run; what the site writes there is left alone."""
    noted = accepted(ours, "--singularity-elastic=2-8")
    assert (noted["AdminComment"], noted["elastic"]) == ("singularity:", "2-8")
    for options in ((), ("--singularity-elastic",), ("--singularity-elastic=2-8", "--singularity-off")):
        assert "AdminComment" not in accepted(ours, *options)


def test_no_requeue_is_kept(ours):
    """Such a job is not noted as one whose size may change, and is told what it gives up."""
    words = ["with --no-requeue", "saved only by `singularityctl checkpoint`"]
    for options, told in (((), []), (["--singularity-elastic=2-8"], words), (["--singularity-elastic=2-8", "--singularity-off"], [])):
        record = accepted(ours, "--no-requeue", *options, words=told)
        assert record["Requeue"] == "0" and "AdminComment" not in record


def test_output_goes_on_after_a_requeue(ours):
    """Of the job that is elastic; the other's begins anew, as it does without the plugin. What another job had written there before is gone in
    both, but where the user says --open-mode=append."""
    jobs = {}
    cases = {"elastic": ["--singularity-elastic"], "appended": ["--singularity-elastic", "--open-mode=append"], "plain": []}
    for name, options in cases.items():
        ours.controller.run(["sh", "-c", f"echo old | tee /shared/{name} >/shared/step-{name}"], user="alice")
        script = (f"echo run $SLURM_RESTART_COUNT $SLURM_SINGULARITY_OUTPUT; srun -o step-{name} echo run $SLURM_RESTART_COUNT; "
                  f"echo start >> /shared/up-{name}; {scenarios.WAIT}")
        jobs[name] = ours.submit(*options, "-wn1", "-o", name, f"--wrap={script}")
    for name, job in jobs.items():
        scenarios.wait_started(ours, f"up-{name}")
        ours.slurm("scontrol", "requeue", str(job))
        scenarios.go(ours, job)
    for job in jobs.values():
        ours.wait_job(job)

    def lines(name):
        return [line.strip() for line in ours.controller.run(["cat", f"/shared/{name}"]).stdout.splitlines() if line.startswith(("run", "old"))]

    expected = {"elastic": ["run", "run 1"], "appended": ["old", "run", "run 1"], "plain": ["run 1"]}
    assert {name: lines(name) for name in cases} == expected
    assert {name: lines(f"step-{name}") for name in cases} == expected


def test_truncation_is_the_users_to_choose(ours):
    record = accepted(ours, "--singularity-elastic", "--open-mode=truncate", words=["--open-mode=truncate", "leave it out"])
    assert record["Requeue"] == "1"
    accepted(ours, "--open-mode=truncate")
    accepted(ours, "--singularity-elastic", "--open-mode=append")


CPUS = ["--gpus=8", "--ntasks=8"]


def test_tasks_have_cpus_at_min(ours):
    before = queue(ours)
    refused(ours, "--singularity-elastic=2-8", *CPUS, "--cpus-per-gpu=2",
            words=["on MIN 2 GPUs the 8 tasks of this job would have 4 CPUs and need 8", "--cpus-per-gpu=4", "a MIN of 4"])
    assert queue(ours) == before
    for options in (["--singularity-elastic=2-8", *CPUS, "--cpus-per-gpu=4"], ["--singularity-elastic=4-8", *CPUS, "--cpus-per-gpu=2"],
                    ["--singularity-elastic=2-8", *CPUS], ["--singularity-elastic=2-8", "--gpus=8", "--cpus-per-gpu=1"], [*CPUS, "--cpus-per-gpu=2"]):
        accepted(ours, *options)
    accepted(ours, "--singularity-elastic", *CPUS, "--cpus-per-gpu=2", words=["on fewer than 4 GPUs the 8 tasks"])


def test_srun_and_salloc(ours):
    """They have no script to requeue; their tasks need CPUs all the same."""
    for command in ("srun", "salloc"):
        answer = ours.controller.run([command, "--singularity-elastic=1-4", "--gpus=4", "--ntasks=4", "--cpus-per-gpu=2", "true"],
                                     user="alice", check=False)
        assert answer.returncode != 0 and "on MIN 1 GPUs the 4 tasks of this job would have 2 CPUs and need 4" in answer.stderr
        assert ours.slurm(command, "--singularity-elastic=1-4", "--ntasks=2", "hostname", user="alice")


def test_heterogeneous_jobs(ours):
    """What runs across their components cannot be saved as one."""
    script = "#!/bin/sh\n#SBATCH -n1 {first}\n#SBATCH hetjob\n#SBATCH -n1 {second}\ntrue\n"
    elastic = "--singularity-elastic=1-2"
    for first, second in ((elastic, ""), ("", elastic), (elastic, elastic)):
        refused(ours, script=script.format(first=first, second=second), words=["singularity: ", "heterogeneous job", "--singularity-off"])
    for first, second in (("", ""), (f"{elastic} --singularity-off", "")):
        _, job = sbatch(ours, script=script.format(first=first, second=second))
        assert job
        ours.slurm("scancel", str(job))


def test_updates_pass(ours):
    _, job = sbatch(ours, "--singularity-elastic=2-8")
    ours.slurm("scontrol", "update", f"JobId={job}", "Requeue=0", "TimeLimit=10", user="alice")
    record = ours.job(job)
    ours.slurm("scancel", str(job))
    assert (record["Requeue"], record["TimeLimit"]) == ("0", "00:10:00")


def test_an_array(ours):
    job = ours.submit("--array=1-2", "--singularity-elastic", "-o", "task-%a", "--wrap=echo task $SLURM_ARRAY_TASK_ID")
    for task in (1, 2):
        assert ours.wait_job(f"{job}_{task}")["Requeue"] == "1"
        assert scenarios.output(ours, f"task-{task}") == ["", f"task {task}"]
