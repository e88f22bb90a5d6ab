# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a program of tests/pytorch/programs with the PyTorch that ./dev setup --pytorch has unpacked: on the software GPU directly, and through
proxies."""

import hashlib
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", part) for part in ("bench", "proxy", "workloads")]

import proxied as builds  # noqa: E402

LIMIT_S = 900
MODES = ("direct", "proxied")


def directory():
    """./dev has the same rule."""
    digest = hashlib.sha256()
    for name in ("packages", "unpack"):
        with open(os.path.join(HERE, name), "rb") as file:
            digest.update(file.read())
    found = os.path.join(os.environ["SINGULARITY_CACHE"], "pytorch", digest.hexdigest()[:12])
    assert os.path.isdir(found), f"'{found}' is missing: ./dev setup --pytorch"
    return found


def variables(before=()):
    """What a program needs to find it where it is; a user who has installed PyTorch sets none of this. Two ranks compute on two processors."""
    modules = os.path.join(directory(), "usr/lib/python3/dist-packages")
    libraries = [*before, os.path.join(modules, "torch/lib"), *(os.path.join(directory(), part) for part in ("usr/lib", "usr/lib/x86_64-linux-gnu")),
                 os.path.join(modules, "nvidia/cudnn/lib")]
    return {"PYTHONPATH": modules, "LD_LIBRARY_PATH": ":".join(libraries), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1"}


def program(*words):
    return [sys.executable, os.path.join(HERE, "programs", words[0]), *map(str, words[1:])]


def direct(words, scratch):
    """(command, environment). PyTorch links NCCL, and does not use it here; NVRTC is told what the software GPU takes, as in a node."""
    own = os.path.join(scratch, "nccl")
    if not os.path.isdir(own):
        os.mkdir(own)
        os.symlink(builds.program("client", "libnccl.so.2"), os.path.join(own, "libnccl.so.2"))
    return program(*words), {**os.environ, **variables([builds.program("softgpu"), own]),
                             "LD_AUDIT": builds.program("libsingularity-redirect.so")}


def proxied(words, devices=1, **more):
    return builds.proxied(program(*words), devices, **variables(), **more)


def run(mode, words, scratch, devices=1):
    """The finished process."""
    command, environment = direct(words, scratch) if mode == "direct" else proxied(words, devices)
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def lines(mode, words, scratch, devices=1):
    """What it has printed; that it failed is an error."""
    done = run(mode, words, scratch, devices)
    assert done.returncode == 0, f"{mode}: {' '.join(words)} ended with {done.returncode}\n{done.stderr[-4000:]}\n{done.stdout[-2000:]}"
    return done.stdout.splitlines()
