# SPDX-License-Identifier: GPL-2.0-or-later
"""--singularity-elastic in sbatch, srun and salloc, and on the nodes."""

import os
import re
import subprocess

import pytest
from conftest import AGENTS_YAML
from virtualcluster.cluster import CHECKOUT
from virtualcluster.errors import wait_for

COMMANDS = {"sbatch": ["--wrap=true"], "srun": ["true"], "salloc": ["true"]}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "value, words",
    [("8-2", "MIN 8 is greater than MAX 2"), ("0-4", "MIN is 0"), ("4", "there is no '-' in it"), ("two-4", "'two' is not a whole number")],
)
def test_bad_value_is_refused_before_submission(ours, command, value, words):
    before = ours.slurm("squeue", "-h", "-t", "all", "-o", "%i").split()
    answer = ours.controller.run([command, f"--singularity-elastic={value}", *COMMANDS[command]], user="alice", check=False)
    assert answer.returncode != 0
    assert words in answer.stderr and value in answer.stderr and "MIN-MAX" in answer.stderr
    assert ours.slurm("squeue", "-h", "-t", "all", "-o", "%i").split() == before


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_the_option(ours, command):
    shown = ours.slurm(command, "--help")
    assert "--singularity-elastic" in shown and "MIN-MAX" in shown and "[singularity]" in shown
    assert "--singularity-checkpoint-every" in shown and "--singularity-off" in shown and "--singularity-store" in shown
    assert "--singularity-save-script" in shown and "--singularity-no-save-script" in shown
    assert "--singularity-image" in shown and "SRC:DST[:ro]" in shown and "--singularity-workdir" in shown


@pytest.mark.parametrize("option, shown", [("--singularity-elastic=2-8", "2-8"), ("--singularity-elastic", "1-requested")])
def test_sbatch_passes_it_to_every_node_and_task(ours, option, shown):
    job = ours.submit("-N2", option, "-o", "%j.out", "--wrap=echo batch $SINGULARITY_ELASTIC; srun sh -c 'echo $(hostname) $SINGULARITY_ELASTIC'")
    ours.wait_job(job)
    lines = sorted(ours.controller.run(["cat", f"/shared/{job}.out"]).stdout.strip().split("\n"))
    assert lines == [f"batch {shown}", f"n1 {shown}", f"n2 {shown}"]
    for node in ("n1", "n2"):
        wait_for(lambda: f"singularity: spank: job {job}: elastic, {shown} GPUs, step 0" in ours.log(node, "slurmd"), 10,
                 f"slurmd's log on {node} to tell of job {job}")


def test_srun_and_salloc_pass_it(ours):
    line = ["--singularity-elastic=1-4", "-N1"]
    assert ours.slurm("srun", *line, "printenv", "SINGULARITY_ELASTIC", user="alice") == "1-4"
    shown = ours.slurm("salloc", *line, "srun", "printenv", "SINGULARITY_ELASTIC", user="alice")
    assert shown == "1-4"


def test_without_the_option_nothing_changes(ours):
    answer = ours.controller.run(["srun", "printenv", "SINGULARITY_ELASTIC"], user="alice", check=False)
    assert answer.returncode != 0 and answer.stdout == ""


def forged(cluster, options, words):
    """The tasks of a step, or the script, fail with the words, and nothing else comes of it."""
    env = {"SINGULARITY_CONF": "/nonexistent"}
    step = cluster.controller.run(["srun", "-wn1", *options.split(), "echo", "runs"], user="alice", check=False, env=env)
    assert (step.returncode, step.stdout) == (1, "") and words in step.stderr
    job = cluster.submit("-wn1", "-o", "%j.out", *options.split(), "--wrap=echo runs", env=env)
    cluster.wait_job(job, ("FAILED",))
    shown = cluster.controller.run(["cat", f"/shared/{job}.out"]).stdout
    assert words in shown and "runs" not in shown
    assert cluster.slurm("sinfo", "-h", "-n", "n1", "-p", "low", "-o", "%t") == "idle", "the node takes other jobs"


def test_the_node_checks_what_the_user_could_forge(ours):
    """The submitting command obeys SINGULARITY_CONF, which is the user's; the node does not."""
    ours.spec.singularity_yaml = AGENTS_YAML + "elastic:\n  max_gpus: 4\n"
    ours.write_conf()
    try:
        refused = ours.controller.run(["srun", "--singularity-elastic=1-8", "true"], user="alice", check=False)
        assert refused.returncode != 0 and "give at most 4 (elastic.max_gpus)" in refused.stderr
        forged(ours, "--singularity-elastic=1-8", "cannot accept --singularity-elastic 1-8: MAX 8 is more")
        assert ours.slurm("srun", "--singularity-elastic=1-4", "printenv", "SINGULARITY_ELASTIC", user="alice") == "1-4"
    finally:
        ours.spec.singularity_yaml = AGENTS_YAML
        ours.write_conf()
    ours.wait_nodes()


def test_broken_configuration_stops_elastic_jobs_only(ours):
    ours.spec.singularity_yaml = AGENTS_YAML + "elastic:\n  max_gpu: 4\n"
    ours.write_conf()
    try:
        refused = ours.controller.run(["srun", "--singularity-elastic=1-8", "true"], user="alice", check=False)
        assert refused.returncode != 0 and "/etc/slurm/singularity.yaml" in refused.stderr and "max_gpus" in refused.stderr
        assert ours.slurm("srun", "hostname", user="alice") in ("n1", "n2")
    finally:
        ours.spec.singularity_yaml = AGENTS_YAML
        ours.write_conf()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("value, words", [("often", "it is no time"), ("1", "give at least 5 (elastic.checkpoint_every_least)"), ("-1", "it is no time")])
def test_bad_time_is_refused_before_submission(ours, command, value, words):
    before = ours.slurm("squeue", "-h", "-t", "all", "-o", "%i").split()
    line = [command, "--singularity-elastic", f"--singularity-checkpoint-every={value}", *COMMANDS[command]]
    answer = ours.controller.run(line, user="alice", check=False)
    assert answer.returncode != 0
    assert f"cannot accept --singularity-checkpoint-every {value}: " in answer.stderr and words in answer.stderr
    alone = ours.controller.run([command, "--singularity-checkpoint-every=30", *COMMANDS[command]], user="alice", check=False)
    assert alone.returncode != 0 and "add --singularity-elastic" in alone.stderr
    assert ours.slurm("squeue", "-h", "-t", "all", "-o", "%i").split() == before


@pytest.fixture
def every(ours):
    """What singularity-task is told of checkpoints, by the environment that it was started with, in a running step of the job."""

    def look(job):
        script = r"""for p in $(grep -lx singularity-tas /proc/[0-9]*/comm); do tr '\0' '\n' <${p%comm}environ; echo; done"""

        def told():
            for text in ours.host("n1").run(script, check=False).stdout.split("\n\n"):
                environment = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
                if environment.get("SLURM_JOB_ID") == str(job) and "SINGULARITY_STEP_HOSTS" in environment and "SINGULARITY_SCRIPT" not in environment:
                    return environment
            return None

        return wait_for(told, 20, f"a task of job {job}").get("SINGULARITY_STEP_EVERY")

    yield look
    ours.slurm("scancel", "-u", "alice")
    wait_for(lambda: ours.slurm("squeue", "-h") == "", 30, "the jobs to be gone")


@pytest.mark.parametrize("options, seconds", [([], "1800"), (["--singularity-checkpoint-every=1:30:00"], "5400"),
                                              (["--singularity-checkpoint-every=off"], "0"), (["--singularity-checkpoint-every=0"], "0"),
                                              (["--singularity-checkpoint-every=1-12"], "129600")])
def test_the_time_reaches_tasks(ours, every, options, seconds):
    job = ours.submit("-wn1", "--singularity-elastic", *options, "--wrap=srun sleep 100")
    assert every(job) == seconds


def test_the_time_is_one_steps_own(ours, every):
    job = ours.submit("-wn1", "--singularity-elastic", "--singularity-checkpoint-every=30",
                      "--wrap=srun --singularity-checkpoint-every=10 sh -c 'env | grep ^SINGULARITY_STEP; sleep 100'", "-o", "%j.out")
    assert every(job) == "600"
    assert ours.controller.run(["cat", f"/shared/{job}.out"]).stdout == "", "the program is told nothing"


def test_the_node_checks_the_time(ours):
    ours.spec.singularity_yaml = AGENTS_YAML + "elastic:\n  checkpoint_every: 2h\n  checkpoint_every_least: 1h\n"
    ours.write_conf()
    try:
        forged(ours, "--singularity-elastic --singularity-checkpoint-every=30", "give at least 60 (elastic.checkpoint_every_least)")
    finally:
        ours.spec.singularity_yaml = AGENTS_YAML
        ours.write_conf()


@pytest.mark.parametrize("command", COMMANDS)
def test_stores_are_those_of_the_cluster(ours, command):
    before = ours.slurm("squeue", "-h", "-t", "all", "-o", "%i").split()
    answer = ours.controller.run([command, "--singularity-elastic", "--singularity-store=/home/alice", *COMMANDS[command]], user="alice", check=False)
    assert answer.returncode != 0
    assert "cannot use the checkpoint store /home/alice: this cluster has: /shared/store (store.directory and" in answer.stderr
    alone = ours.controller.run([command, "--singularity-store=/shared/store", *COMMANDS[command]], user="alice", check=False)
    assert alone.returncode != 0 and "add --singularity-elastic" in alone.stderr
    assert ours.slurm("squeue", "-h", "-t", "all", "-o", "%i").split() == before


def test_the_node_checks_the_store(ours):
    forged(ours, "--singularity-elastic --singularity-store=/var/lib/singularity/store", "this cluster has: /shared/store (store.directory and")


@pytest.mark.parametrize("options, variable, words", [
    (["-wn1", "-n1"], "SINGULARITY_STEP_STORE=/home/alice", "cannot use the checkpoint store /home/alice: this cluster has: /shared/store (store.directory and"),
    (["-wn1", "-n2"], "SINGULARITY_STEP_STORE=$([ $SLURM_PROCID = 0 ] || echo /shared/store)", "says something else of its hosts, ranks, GPUs, image, published ports, store or job"),
    (["-N2", "-n2"], "SINGULARITY_STEP_STORE=$([ $SLURM_PROCID = 0 ] || echo /shared/store)", "say that it is saved in '/shared/store', and others in ''"),
])
def test_the_agent_checks_the_store(ours, options, variable, words):
    """Whoever calls singularity-task by himself can tell the agent anything."""
    hosts = "n1,n2" if "-N2" in options else "n1"
    script = f"export SINGULARITY_STEP_HOSTS={hosts} {variable}; exec /usr/lib/singularity/singularity-task echo runs"
    step = ours.controller.run(["srun", *options, "sh", "-c", script], user="alice", check=False)
    assert step.returncode != 0 and words in step.stderr, step
    assert "runs" not in step.stdout


SHOW = "echo $SLURM_PROCID:${SINGULARITY_ELASTIC-none}:$(cat /proc/1/comm)"


def test_off(ours):
    """Stronger than the script and the environment, and on a cluster that has switched the rest off."""
    script = f"#!/bin/sh\n#SBATCH --singularity-elastic=2-8 --singularity-checkpoint-every=30 -wn1 -o %j.out\n{SHOW}; srun sh -c '{SHOW}'\n"

    def shown(*options):
        job = ours.submit(*options, script=script)
        ours.wait_job(job)
        return ours.controller.run(["cat", f"/shared/{job}.out"]).stdout.splitlines()

    assert [line.split(":")[1] for line in shown()] == ["2-8", "2-8"]
    off = shown("--singularity-off")
    assert [line.split(":")[1] for line in off] == ["none", "none"] and "singularity-ini" not in "".join(off)
    ours.spec.singularity_yaml = AGENTS_YAML + "elastic:\n  enabled: false\n"
    ours.write_conf()
    try:
        refused = ours.controller.run(["sbatch"], user="alice", stdin=script, check=False)
        assert refused.returncode != 0 and "disabled on this cluster" in refused.stderr
        assert [line.split(":")[1] for line in shown("--singularity-off")] == ["none", "none"]
    finally:
        ours.spec.singularity_yaml = AGENTS_YAML
        ours.write_conf()


def test_off_for_one_step(ours):
    job = ours.submit("-wn1", "--singularity-elastic=2-8", "-o", "%j.out", f"--wrap=srun --singularity-off sh -c '{SHOW}'; srun sh -c '{SHOW}'")
    ours.wait_job(job)
    off, on = ours.controller.run(["cat", f"/shared/{job}.out"]).stdout.splitlines()
    assert off.startswith("0:none:") and "singularity-ini" not in off
    assert on == "0:2-8:singularity-ini"
    line = ["srun", "--singularity-elastic=2-8", "--singularity-off", "-wn1", "sh", "-c", SHOW]
    assert ours.slurm(*line, user="alice").startswith("0:none:")
    line[1:3] = line[2:0:-1]
    assert ours.slurm(*line, user="alice").startswith("0:none:")


# What Slurm looks up in each; anything more could clash with another plugin in the same process.
ALLOWED = {
    "spank_singularity.so": r"plugin_(name|type|version)|spank_plugin_version|slurm_spank_\w+",
    "select_cons_tres_singularity.so": r"plugin_(name|type|version|id)|init|fini|select_p_\w+|singularity_\w+",
    "job_submit_singularity.so": r"plugin_(name|type|version)|init|fini|job_submit|job_modify",
    "priority_singularity.so": r"plugin_(name|type|version)|init|fini|priority_p_\w+",
}


@pytest.mark.parametrize("name", ALLOWED)
def test_plugins_export_only_their_own_symbols(release, name):
    stage = os.path.join(CHECKOUT, "build", f"stage-{release}")
    paths = [os.path.join(directory, name) for directory, _, files in os.walk(stage) if name in files]
    assert len(paths) == 1
    shown = subprocess.run(["nm", "-D", "--defined-only", paths[0]], capture_output=True, text=True, check=True).stdout
    symbols = [line.split()[-1] for line in shown.strip().split("\n")]
    assert "plugin_version" in symbols
    assert [symbol for symbol in symbols if not re.fullmatch(ALLOWED[name], symbol)] == []
