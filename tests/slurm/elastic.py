# SPDX-License-Identifier: GPL-2.0-or-later
"""What tests of elastic steps have in common."""

from virtualcluster.errors import wait_for

ELASTIC = "--singularity-elastic"
WRAPPER = "/usr/lib/singularity/singularity-task"
INIT = "singularity-ini"  # as comm has it
PATIENCE = 120
# The harness' own 5 s are not enough for a checkpoint on a machine that is busy.
TIME_TO_SAVE = {"KillWait": "20"}


def left(cluster):
    """{host: what there is of steps}"""
    script = (f"ls /run/singularity/nodes /run/singularity/members /run/singularity/jobs | grep -v ^/ | grep .; "
              f"grep -l -e singularity-net -e {INIT} -e singularity-tas -e singularity-pro /proc/[0-9]*/comm")
    return {host.name: cluster.host(host.name).run(script, check=False).stdout.split() for host in cluster.nodes}


def assert_clean(cluster, seconds=PATIENCE):
    wait_for(lambda: not any(left(cluster).values()), seconds, f"nothing to be left: {left(cluster)}")
