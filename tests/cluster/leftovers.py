# SPDX-License-Identifier: GPL-2.0-or-later
"""What exists of a cluster, told by the kernel and not by the harness's own records."""

import errno
import fcntl
import glob
import os
import subprocess
import sys

from virtualcluster import cgroups


def _each_process():
    for path in glob.glob("/proc/[0-9]*"):
        yield path


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # the process ended meanwhile, so it is nothing that is left


def processes(cluster):
    """Processes in one of its cgroups, or with its directory in their mounts or arguments (this one aside)."""
    found = []
    for path in _each_process():
        if path == f"/proc/{os.getpid()}":
            continue
        if f"/{cgroups.TOP}/{cluster.name}/" in _read(f"{path}/cgroup") or cluster.directory in _read(
            f"{path}/cmdline"
        ):
            found.append(f"{path}: {_read(path + '/cmdline')}")
    return found


def mounts(cluster):
    return [path for path in _each_process() if cluster.directory in _read(f"{path}/mountinfo")]


def _started(path):
    """When a process was started, in seconds since boot; proc(5), field 22 of stat. The name before may hold anything."""
    fields = _read(f"{path}/stat").rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK") if fields else float("inf")


KINDS = ("mnt", "net", "pid", "uts", "ipc", "cgroup")
NS_GET_ID = 0x8008B70D  # ioctl_nsfs(2), Linux 6.18: a number that no other namespace ever has; an inode's goes to the next one


def _namespace(path, kind):
    """A process's, as kind:[number]; None where it has ended meanwhile, or is beyond what root of this container may look at."""
    try:
        with open(f"{path}/ns/{kind}", "rb") as file:
            try:
                return f"{kind}:[{int.from_bytes(fcntl.ioctl(file, NS_GET_ID, bytes(8)), sys.byteorder)}]"
            except OSError as error:
                if error.errno != errno.ENOTTY:
                    raise
                return os.readlink(f"{path}/ns/{kind}")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def namespaces(those, since=float("inf")):
    """Which of the namespaces, as namespaces_of() has them, still have a process in them.

    since: when the cluster's end began. For kernels that have only the inode's number: a process that was started later (by a test
    that runs beside this one) is in another namespace of that number.
    """
    return {
        _namespace(path, kind) for path in _each_process() if _started(path) <= since for kind in KINDS
    } & those


def namespaces_of(cluster):
    """The namespaces of its first process and of its hosts."""
    from virtualcluster import kernel

    pids = [kernel.lock_holder(cluster.lock_path)] + [host.pid() for host in cluster.hosts.values()]
    own = {_namespace("/proc/self", kind) for kind in KINDS}
    return {_namespace(f"/proc/{pid}", kind) for pid in pids if pid for kind in KINDS} - own - {None}


def links():
    """Network links of the machine itself."""
    return subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout


def everything(cluster, those):
    """All that is left of the cluster and of those namespaces, as {kind: list}; empty when nothing is."""
    found = {
        "processes": processes(cluster),
        "mounts": mounts(cluster),
        "namespaces": sorted(namespaces(those, cluster.down_since)),
        "cgroups": cgroups.existing(cluster.name),
        "files": [cluster.directory] if os.path.exists(cluster.directory) else [],
    }
    return {kind: items for kind, items in found.items() if items}
