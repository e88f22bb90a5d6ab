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


def test_the_node_checks_what_the_user_could_forge(ours):
    """The submitting command obeys SINGULARITY_CONF, which is the user's; the node does not."""
    ours.spec.singularity_yaml = AGENTS_YAML + "elastic:\n  max_gpus: 4\n"
    ours.write_conf()
    try:
        refused = ours.controller.run(["srun", "--singularity-elastic=1-8", "true"], user="alice", check=False)
        assert refused.returncode != 0 and "give at most 4 (elastic.max_gpus)" in refused.stderr
        forged = ours.controller.run(["srun", "--singularity-elastic=1-8", "printenv", "SINGULARITY_ELASTIC"], user="alice",
                                     check=False, env={"SINGULARITY_CONF": "/nonexistent"})
        assert forged.returncode != 0 and "1-8" not in forged.stdout
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


# What Slurm looks up in each; anything more could clash with another plugin in the same process.
ALLOWED = {
    "spank_singularity.so": r"plugin_(name|type|version)|spank_plugin_version|slurm_spank_\w+",
    "select_cons_tres_singularity.so": r"plugin_(name|type|version|id)|init|fini|select_p_\w+|singularity_\w+",
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
