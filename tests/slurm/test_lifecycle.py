# SPDX-License-Identifier: GPL-2.0-or-later
"""Elastic jobs that Slurm ends and runs again: no work is lost, and what they write is as if nobody had disturbed them."""

import re
import shlex

import pytest
from conftest import elastic_up
from virtualcluster.errors import wait_for

PATIENCE = 120
ELASTIC = "--singularity-elastic"
# Its state is in its memory alone. Whoever counts twice, or not at all, is seen.
COUNT = """
import os, time
rank = os.environ["SLURM_PROCID"]
for number in range({numbers}):
    print("rank", rank, number, flush=True)
    time.sleep({pause})
"""


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


def left(cluster):
    script = (f"ls /run/singularity/nodes /run/singularity/members /run/singularity/jobs | grep -v ^/ | grep .; "
              "grep -l -e singularity-net -e singularity-ini -e singularity-tas -e singularity-pro /proc/[0-9]*/comm")
    return {host.name: cluster.host(host.name).run(script, check=False).stdout.split() for host in cluster.nodes}


def assert_clean(cluster):
    wait_for(lambda: not any(left(cluster).values()), PATIENCE, "nothing to be left")


def requeue(cluster, job):
    cluster.slurm("scontrol", "requeue", str(job))


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, nodes=2) as made:
        yield made
        assert_clean(made)


def test_requeued_jobs_go_on(cluster):
    """On the same two nodes, twice."""
    job = cluster.submit(ELASTIC, "-N2", "--ntasks-per-node=2", "--open-mode=append", "--requeue", script=script("echo begun", count(), "echo end"))
    for number in (20, 60):
        wait_counted(cluster, job, number, 4)
        requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    shown = output(cluster, job)
    assert counted(cluster, job) == {rank: list(range(200)) for rank in range(4)}, shown
    assert shown.count("begun") == 3 and shown.count("end") == 1
