# SPDX-License-Identifier: GPL-2.0-or-later
"""The workloads that have been built, as CMakeLists.txt declares them; used by run.py and by tests/proxy and tests/checkpoint."""

import pathlib


def workloads(programs):
    """name -> number of devices, in the order of the declaration; programs is the directory that they were built in."""
    lines = (pathlib.Path(programs) / "programs.txt").read_text(encoding="utf-8").splitlines()
    return {name: int(devices) for name, devices in map(str.split, lines)}
