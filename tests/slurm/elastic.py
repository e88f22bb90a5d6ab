# SPDX-License-Identifier: GPL-2.0-or-later
"""What tests of elastic steps have in common."""

import re

from conftest import METRICS
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


def checks(cluster, outcome):
    """{host: how many of that outcome its agent has told of}"""
    shown = {host.name: cluster.host(host.name).run(["cat", METRICS], check=False).stdout for host in cluster.nodes}
    found = {name: re.search(rf'^singularity_node_checks_total\{{outcome="{outcome}"\}} (\d+)$', text, re.MULTILINE) for name, text in shown.items()}
    return {name: int(one[1]) if one else 0 for name, one in found.items()}
