# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of several ranks, through proxies of their own on the software GPU."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench"))
import proxied  # noqa: E402

DEADLINE = 240  # seconds, for one run


def command(ranks, devices, program, *arguments, **variables):
    """(command, environment) of a program as so many processes."""
    launch = [sys.executable, os.path.join(HERE, "launch.py"), str(ranks), program, *arguments]
    return proxied.proxied(launch, devices=devices, **variables)


def finished(run):
    """Runs it; its standard output, an error with all that it wrote otherwise."""
    line, environment = run
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, f"{' '.join(line)} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def built(name):
    return proxied.program("ranks", name)
