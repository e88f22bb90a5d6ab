# SPDX-License-Identifier: GPL-2.0-or-later
"""Signals to batch scripts: what comes of them on stock Slurm comes of them in an elastic job, whether its script is saved or not."""

import time

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, assert_clean
from test_lifecycle import script
from virtualcluster.errors import wait_for

KINDS = {"again": (ELASTIC,), "saved": (ELASTIC, "--singularity-save-script")}
LOOP = "until [ -e go-$SLURM_JOB_ID ]; do echo tick >> ticks-$SLURM_JOB_ID; sleep 0.1; done"
BEGINS = "cd /shared; echo begins"
# name: (its script, its options)
SCRIPTS = {
    "a trap": ([BEGINS, "trap 'echo told' USR1", LOOP, "echo over"], ()),
    "no trap": ([BEGINS, LOOP, "echo over"], ()),
    "a trap that ends it": ([BEGINS, "trap 'echo told; exit 7' TERM", LOOP, "echo over"], ()),
    "ended": ([BEGINS, LOOP, "echo over"], ()),
    "stopped by STOP": ([BEGINS, LOOP, "echo over"], ()),
    "stopped by TSTP": ([BEGINS, LOOP, "echo over"], ()),
    "stops itself": (["cd /shared; began=$SECONDS", "(sleep 3; kill -CONT $$) &", "kill -TSTP $$", "echo waited $((SECONDS - began >= 2))"], ()),
    "warned": ([BEGINS, "trap 'echo warned; exit 3' USR1", LOOP], ("--time=1", "--signal=B:USR1@60")),
}


@pytest.fixture(scope="module")
def elastic(release):
    with elastic_up(release) as made:
        yield made
        assert_clean(made)


def ticks(cluster, job):
    return cluster.controller.run(["cat", f"/shared/ticks-{job}"], check=False).stdout.count("tick")


def ticks_on(cluster, job):
    before = ticks(cluster, job)
    wait_for(lambda: ticks(cluster, job) > before + 1, PATIENCE, f"job {job} to go on")


def stands_still(cluster, job):
    """Within a second, and for more than that."""
    time.sleep(1)
    before = ticks(cluster, job)
    time.sleep(1.5)
    return ticks(cluster, job) == before


def scancel(cluster, job, number):
    cluster.slurm("scancel", "--batch", f"--signal={number}", str(job))


def outcomes(cluster, kind):
    """{name: what became of it}"""
    jobs = {name: cluster.submit(*KINDS.get(kind, ()), "-n1", "--mem=50", "--no-requeue", *options, script=script(*lines)) for name, (lines, options) in SCRIPTS.items()}
    for name, (lines, _) in SCRIPTS.items():
        if lines[0] == BEGINS:
            wait_for(lambda name=name: ticks(cluster, jobs[name]) > 0, PATIENCE, f"'{name}' to begin")
    found = {}
    scancel(cluster, jobs["a trap"], "USR1")
    scancel(cluster, jobs["no trap"], "USR1")
    scancel(cluster, jobs["a trap that ends it"], "TERM")
    scancel(cluster, jobs["ended"], "TERM")
    for number in ("STOP", "TSTP"):
        job = jobs[f"stopped by {number}"]
        scancel(cluster, job, number)
        found[f"stood still by {number}"] = stands_still(cluster, job), cluster.job(job)["JobState"]
        scancel(cluster, job, "CONT")
        ticks_on(cluster, job)
    for name in ("a trap", "stopped by STOP", "stopped by TSTP"):
        cluster.controller.run(["touch", f"/shared/go-{jobs[name]}"])
    for name, job in jobs.items():
        cluster.wait_job(job, ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"), PATIENCE)
        about = cluster.job(job)
        text = cluster.controller.run(["cat", f"/shared/slurm-{job}.out"]).stdout
        found[name] = about["JobState"], about["ExitCode"], [line for line in text.splitlines() if "slurmstepd" not in line]
    return found


@pytest.fixture(scope="module")
def expected(stock):
    return outcomes(stock, None)


@pytest.mark.parametrize("kind", KINDS)
def test_signals_of_scripts(expected, elastic, kind):
    assert outcomes(elastic, kind) == expected
    assert expected["stood still by STOP"] == (True, "STOPPED")
