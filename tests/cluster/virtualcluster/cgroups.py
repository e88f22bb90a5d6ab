# SPDX-License-Identifier: GPL-2.0-or-later
"""Each host's part of the machine's cgroup v1 hierarchies: <hierarchy>/slurm-singularity/<cluster>/<host>.

A host's cgroup namespace makes its directory look like the top of the hierarchy, so slurmd needs no knowledge of it.
"""

import os

from .errors import ClusterError, wait_for

TOP = "slurm-singularity"


def hierarchies():
    """Mount points of the v1 hierarchies that have controllers: {controllers as mounted: mount point}."""
    found = {}
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            _, point, kind, options = line.split()[:4]
            controllers = point.rpartition("/")[2]
            if kind == "cgroup" and "name=" not in options and point.startswith("/sys/fs/cgroup/"):
                found[controllers] = point
    for needed in ("freezer", "devices", "memory"):
        if not any(needed in name.split(",") for name in found):
            raise ClusterError(
                f"no cgroup v1 hierarchy with the controller '{needed}' is mounted in /sys/fs/cgroup: the virtual "
                "cluster gives each host a part of those; boot with systemd.unified_cgroup_hierarchy=0, or mount it"
            )
    return found


def directories(cluster, host=None):
    return [os.path.join(point, TOP, cluster, *([host] if host else [])) for point in hierarchies().values()]


def _make_directory(path):
    try:
        os.mkdir(path)
    except FileExistsError:
        return
    if os.path.exists(os.path.join(path, "cpuset.cpus")):
        # A new cpuset is empty and takes no process until it has the parent's processors and memory nodes.
        for file in ("cpuset.cpus", "cpuset.mems"):
            with open(os.path.join(os.path.dirname(path), file), encoding="ascii") as parent:
                value = parent.read()
            with open(os.path.join(path, file), "w", encoding="ascii") as own:
                own.write(value)


def make(cluster, host):
    for path in directories(cluster, host):
        _make_directory(os.path.dirname(os.path.dirname(path)))
        _make_directory(os.path.dirname(path))
        _make_directory(path)


def join(cluster, host):
    """Moves the calling process into the host's cgroups."""
    for path in directories(cluster, host):
        with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as procs:
            procs.write("0")


def _remove_tree(path):
    for directory, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            pass


def remove(cluster, host=None, seconds=10):
    """Removes the directories of a host, or of the whole cluster, once the kernel has let go of their processes."""

    def gone():
        for path in directories(cluster, host):
            try:
                _remove_tree(path)
            except OSError:  # EBUSY while processes are still being reaped
                return False
        return True

    wait_for(gone, seconds, f"the cgroups of {host or 'cluster'} {cluster} to become empty")
    if host is None:
        for path in directories(cluster):
            try:
                os.rmdir(os.path.dirname(path))
            except OSError:
                pass  # other clusters are there


def existing(cluster):
    return [path for path in directories(cluster) if os.path.exists(path)]
