# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of several ranks, through proxies of their own on the software GPU."""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench"))
import proxied  # noqa: E402

DEADLINE = 240  # seconds, for one run
MOVED = re.compile(r"communicator \d+: (\d+) reductions on the device, (\d+) bytes moved within it, (\d+) to and from memory of the host")


def command(ranks, devices, program, *arguments, options=(), **variables):
    """(command, environment) of a program as so many processes; options: of the proxies."""
    launch = [sys.executable, os.path.join(HERE, "launch.py"), str(ranks), program, *arguments]
    return proxied.proxied(launch, devices=devices, options=options, **variables)


def finished(run):
    """Runs it; its standard output, an error with all that it wrote otherwise."""
    line, environment = run
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, f"{' '.join(line)} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


class Staging:
    """Collectives of ranks of one device are told to stay on it, and what the proxy's log says has become of that."""

    def __init__(self, directory):
        self.log = os.path.join(directory, "proxy.log")
        self.options = ("--reductions=device", f"--log-file={self.log}", "--log-level=debug")

    def check(self, on_device=True):
        """All reductions were carried out there, or none was; how many."""
        with open(self.log, encoding="utf-8") as file:
            text = file.read()
        counts = [tuple(map(int, found)) for found in MOVED.findall(text)]
        assert counts, f"no member has said what it has done:\n{text[-3000:]}"
        reductions, within, through = (sum(column) for column in zip(*counts))
        if on_device:
            assert reductions and within, text[-3000:]
            assert "through memory of the host" not in text, text[-3000:]
            # Scalars, and what members exchange among each other: never what is staged.
            assert through < within / 1000, counts
        else:
            assert "through memory of the host" in text, text[-3000:]
            assert not reductions and not within and through, counts
        return reductions


def built(name):
    return proxied.program("ranks", name)
