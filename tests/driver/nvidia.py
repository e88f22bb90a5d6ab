# SPDX-License-Identifier: GPL-2.0-or-later
"""NVIDIA's own libcuda.so.1, for comparison: Debian's package, which is not free. It is no part of this project and nothing links it; the tests
download it, look at its checksum, unpack it beside Debian's root directories in ./dev's cache, and ask it. No package is installed.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile

from virtualcluster.cluster import CACHE

PACKAGE, VERSION = "libcuda1", "550.163.01-2"
SHA256 = "8feff97aac61d6f27ded96a3c25b9e68025a680476e6072ff7eaf10623509135"
CUDA_VERSION = 12040  # what it says of itself
LIBRARY = "usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1"
LIMIT_S = 180
ELSEWHERE = "tests/driver/nvidia.py names the version and the checksum, and tests/driver/differences.py what differs"


class DriverError(Exception):
    pass


def _run(command, directory):
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise DriverError(f"'{' '.join(command[:1] + command[-2:])}' took more than {LIMIT_S} s: is Debian's package registry reachable?") from None
    if done.returncode != 0:
        raise DriverError(f"cannot get NVIDIA's library for comparison: '{' '.join(command[:1] + command[-2:])}' exited with {done.returncode}: "
                          f"{done.stderr.strip()} (is Debian's package registry reachable, and does it still have {PACKAGE} {VERSION}? {ELSEWHERE})")
    return done.stdout


def _source():
    """Where this root's packages come from, with the packages that are not free."""
    with open("/etc/apt/sources.list", encoding="utf-8") as file:
        found = re.search(r"^deb (?:\[[^]]*\] )?(\S+) trixie main", file.read(), re.M)
    if not found:
        raise DriverError("no 'deb ... trixie main' line in /etc/apt/sources.list to take the mirror from")
    return f"deb {found[1]} trixie non-free\n"


def _download(directory):
    """The package's file, in a directory in which apt keeps all that it writes."""
    with open(os.path.join(directory, "sources.list"), "w", encoding="utf-8") as file:
        file.write(_source())
    os.makedirs(os.path.join(directory, "lists", "partial"))
    apt = ["apt-get", "-q"]
    for option in (f"Dir::Etc::sourcelist={directory}/sources.list", "Dir::Etc::sourceparts=-",
                   f"Dir::State::lists={directory}/lists", f"Dir::Cache={directory}/cache", "Acquire::Languages=none", "APT::Sandbox::User=root",
                   "Acquire::Check-Valid-Until=false"):
        apt += ["-o", option]
    _run([*apt, "update"], directory)
    _run([*apt, "download", f"{PACKAGE}={VERSION}"], directory)
    found = [name for name in os.listdir(directory) if name.endswith(".deb")]
    with open(os.path.join(directory, found[0]), "rb") as file:
        checksum = hashlib.sha256(file.read()).hexdigest()
    if checksum != SHA256:
        raise DriverError(f"{found[0]} has the checksum {checksum}, not {SHA256}: {ELSEWHERE}")
    return os.path.join(directory, found[0])


def library():
    """Its path. Downloaded once, and renamed when all is there."""
    drivers = os.path.join(CACHE, "drivers")
    kept = os.path.join(drivers, f"{VERSION}-{SHA256[:12]}")
    os.makedirs(drivers, exist_ok=True)
    with open(os.path.join(drivers, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(kept):
            with tempfile.TemporaryDirectory(dir=drivers) as scratch:
                package = _download(scratch)
                unpacked = os.path.join(scratch, "unpacked")
                _run(["dpkg-deb", "-x", package, unpacked], scratch)
                shutil.move(unpacked, kept)
    return os.path.join(kept, LIBRARY)
