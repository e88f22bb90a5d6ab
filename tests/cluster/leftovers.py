# SPDX-License-Identifier: GPL-2.0-or-later
"""What exists of a cluster, told by the kernel and not by the harness's own records."""

import glob
import os
import subprocess

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


def namespaces(inodes, since=float("inf")):
    """Which of the namespaces (as {kind: inode link}) still have a process in them.

    since: when the cluster's end began. The kernel gives the number of a namespace that is gone to the next one: a process that
    was started later (by a test that runs beside this one) is in another namespace of that number.
    """
    found = set()
    for path in _each_process():
        if _started(path) > since:
            continue
        for kind in ("mnt", "net", "pid", "uts", "ipc", "cgroup"):
            try:
                link = os.readlink(f"{path}/ns/{kind}")
            except OSError:
                continue
            if link in inodes:
                found.add(link)
    return found


def namespaces_of(cluster):
    """The namespaces of its first process and of its hosts, as links like net:[4026532001]."""
    from virtualcluster import kernel

    pids = [kernel.lock_holder(cluster.lock_path)] + [host.pid() for host in cluster.hosts.values()]
    own = {os.readlink(f"/proc/self/ns/{kind}") for kind in ("mnt", "net", "pid", "uts", "ipc", "cgroup")}
    links = {
        os.readlink(f"/proc/{pid}/ns/{kind}")
        for pid in pids if pid
        for kind in ("mnt", "net", "pid", "uts", "ipc", "cgroup")
    }
    return links - own


def links():
    """Network links of the machine itself."""
    return subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout


def everything(cluster, namespace_links):
    """All that is left of the cluster, as {kind: list}; empty when nothing is."""
    found = {
        "processes": processes(cluster),
        "mounts": mounts(cluster),
        "namespaces": sorted(namespaces(namespace_links, cluster.down_since)),
        "cgroups": cgroups.existing(cluster.name),
        "files": [cluster.directory] if os.path.exists(cluster.directory) else [],
    }
    return {kind: items for kind, items in found.items() if items}
