# SPDX-License-Identifier: GPL-2.0-or-later
"""With both plugins configured, everything comes out as on stock Slurm, in the same run."""

import multiprocessing

import pytest
import scenarios
from virtualcluster import Cluster


def _run(arguments):
    cluster, scenario = arguments
    cluster = Cluster.open(cluster)
    try:
        return getattr(scenarios, scenario)(cluster)
    except BaseException:
        # The next scenario starts from an idle cluster whatever happened to this one.
        cluster.slurm("scancel", "--user=alice", "--user=bob", check=False)
        raise


@pytest.mark.parametrize("scenario", [function.__name__ for function in scenarios.ALL])
def test_same_outcome(stock, ours, scenario):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        expected, found = pool.map_async(_run, [(stock.name, scenario), (ours.name, scenario)], 1).get(240)
    assert found == expected
    assert ours.daemon_pid("ctl", "slurmctld") is not None


def test_the_plugins_are_the_ones_in_use(ours, stock):
    shown = ours.slurm("scontrol", "show", "config")
    assert "select/cons_tres_singularity" in shown and "priority/singularity" in shown
    assert "singularity" not in stock.slurm("scontrol", "show", "config")
