# SPDX-License-Identifier: GPL-2.0-or-later
"""Trainings of several ranks (tests/workloads/train_*.cu): the same losses and parameters on any number of devices."""

import pathlib

import pytest

import ranked
from ranked import proxied

DEVICES = (8, 4, 2, 1)


def trainings():
    lines = pathlib.Path(proxied.program("workloads", "ranked.txt")).read_text(encoding="utf-8").splitlines()
    return [(name, int(ranks)) for name, ranks in map(str.split, lines)]


@pytest.mark.parametrize("name, ranks", trainings())
def test_results_do_not_depend_on_devices(name, ranks):
    outputs = {}
    for devices in DEVICES:
        if devices <= ranks:
            outputs[devices] = ranked.finished(ranked.command(ranks, devices, proxied.program("workloads", name)))
            assert outputs[devices].endswith("[0] PASSED\n"), outputs[devices]
    assert len(set(outputs.values())) == 1, outputs


@pytest.mark.parametrize("name, ranks", trainings())
def test_results_do_not_depend_on_where_they_are_reduced(name, ranks, tmp_path):
    program = proxied.program("workloads", name)
    staging = ranked.Staging(tmp_path)
    on_device = ranked.finished(ranked.command(ranks, 1, program, options=staging.options))
    staging.check()
    assert on_device == ranked.finished(ranked.command(ranks, 1, program, options=("--reductions=host",)))


def test_ranks_come_from_slurm():
    """Without RANK and WORLD_SIZE, from SLURM_PROCID and SLURM_NTASKS."""
    program = proxied.program("workloads", "train_pipeline")
    assert ranked.finished(ranked.command(4, 1, program, LAUNCH_AS="slurm")) == ranked.finished(ranked.command(4, 1, program))
