# SPDX-License-Identifier: GPL-2.0-or-later
"""The process that everything of a cluster hangs on.

It is the first process of a PID namespace in which all hosts live, and owns the mount namespace with all their
mounts and the network namespace with the switch between them. When it dies, by `down`, by kill -9 or because the
process that owns the cluster died, the kernel ends every process of every host and takes mounts and links with them.
"""

import os
import select
import signal
import subprocess

from . import kernel
from .errors import ClusterError

BRIDGE = "switch"


def start(lock_path, log_path, owner=None):
    """Starts it and returns once it holds its lock. owner: a process whose end is the cluster's end."""
    owner_descriptor = os.pidfd_open(owner) if owner else None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _become_anchor(lock_path, log_path, owner_descriptor, writer)
    os.close(writer)
    if owner_descriptor is not None:
        os.close(owner_descriptor)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if answer != "up":
        raise ClusterError(f"starting the cluster's first process failed: {answer or 'it died'}; see {log_path}")


def _become_anchor(lock_path, log_path, owner_descriptor, writer):
    try:
        os.setsid()
        os.unshare(os.CLONE_NEWNS | os.CLONE_NEWNET | os.CLONE_NEWIPC | os.CLONE_NEWUTS | os.CLONE_NEWPID)
        if os.fork() != 0:
            os._exit(0)
        # From here on: process 1 of the cluster's PID namespace.
        kernel.silence(log_path)
        kernel.mount(None, "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
        lock = kernel.hold_lock(lock_path)
        keep = [d for d in (owner_descriptor, writer, lock) if d is not None]
        kernel.close_other_descriptors(keep)
        commands = f"link set lo up\nlink add {BRIDGE} type bridge\nlink set {BRIDGE} up\n"
        subprocess.run(["ip", "-batch", "-"], input=commands, text=True, check=True)
        # Hosts' processes whose parents have gone are its children now; nobody asks for their exit status.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.write(writer, b"up")
        os.close(writer)
        while True:
            ended, _, _ = select.select([owner_descriptor] if owner_descriptor is not None else [], [], [])
            if ended:
                os._exit(0)
    except BaseException as error:  # noqa: the parent must hear of it, whatever it is
        try:
            os.write(writer, str(error).encode())
        finally:
            os._exit(1)
