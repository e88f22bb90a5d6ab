# SPDX-License-Identifier: GPL-2.0-or-later
"""How benches run a program: on the software GPU directly, and through the proxy on the software GPU."""

import os
import subprocess

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BUILD = os.environ.get("SINGULARITY_BUILD", os.path.join(TOP, "build", "release"))
DEADLINE = 300  # seconds, for any one program


def program(*parts):
    path = os.path.join(BUILD, *parts)
    if not os.path.exists(path):
        raise FileNotFoundError(f"'{path}' is missing: build with -DSINGULARITY_PROXY=ON, or set SINGULARITY_BUILD")
    return path


def direct(command, **variables):
    """(command, environment) for a run without a proxy."""
    environment = dict(os.environ, LD_LIBRARY_PATH=program("softgpu"), **variables)
    return command, environment


def proxied(command, devices=1, options=(), **variables):
    """The same through proxies of its own, which are given options."""
    runner = [program("spank", "singularityctl"), "proxy", "run", "--backend", "software", "--devices", str(devices)]
    runner += [f"--proxyd-option={option}" for option in options]
    return runner + ["--"] + command, {**os.environ, "SINGULARITY_LIBDIR": BUILD, **variables}


def run(command, environment):
    """Its standard output; a failure is an error with its standard error."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def figures(text):
    """'name value' lines as numbers."""
    return {words[0]: float(words[1]) for words in map(str.split, text.splitlines()) if len(words) == 2}
