# SPDX-License-Identifier: GPL-2.0-or-later
"""The few system calls that Python's standard library does not have, and locks that tell who holds them."""

import ctypes
import fcntl
import os
import select
import signal
import struct

from .errors import ClusterError, wait_for

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
SYS_PIVOT_ROOT = 155  # x86_64; glibc has no wrapper

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _bytes(text):
    return None if text is None else os.fsencode(text)


def mount(source, target, kind=None, flags=0, options=None):
    result = _libc.mount(_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(options))
    _check(result, f"mount {kind or 'bind'} {source} on {target}")


def bind(source, target, read_only=False):
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        mount(None, target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def unmount(target):
    _check(_libc.umount2(_bytes(target), MNT_DETACH), f"unmount {target}")


def pivot_root(new, old):
    _check(_libc.syscall(SYS_PIVOT_ROOT, _bytes(new), _bytes(old)), f"pivot_root to {new}")


# struct flock of x86_64: l_type, l_whence, l_start, l_len, l_pid
_FLOCK = "hhqqi4x"


def hold_lock(path):
    """Takes a lock that lasts as long as this process (also across exec, not across fork). Returns its descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.fcntl(descriptor, fcntl.F_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    os.set_inheritable(descriptor, True)
    return descriptor


def lock_holder(path):
    """The process that holds the lock, as numbered in the caller's PID namespace, or None.

    This is how a process of a cluster is found again: unlike a recorded number it cannot be another process by now,
    and it needs nobody to have lived long enough to record it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(
            descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        )
    finally:
        os.close(descriptor)
    kind, _, _, _, pid = struct.unpack(_FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else pid


def kill_lock_holder(path, seconds, what):
    """SIGKILLs the holder of the lock, the first process of a PID namespace, and waits until the kernel has ended and
    reaped everything in that namespace. True if there was one."""
    pid = lock_holder(path)
    if pid is None:
        return False
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        start = process_start_time(pid)
        # Only now is it certain that the number still means the holder.
        if lock_holder(path) == pid:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        # Readable when all of the namespace is dead; the lock is released well before that.
        if not select.select([descriptor], [], [], seconds)[0]:
            raise ClusterError(f"waited {seconds} s for {what} (process {pid}) to die")
        # Until its new parent has reaped it, its entry in /proc still shows the namespaces.
        wait_for(lambda: start is None or process_start_time(pid) != start, seconds, f"{what} (process {pid}) to be reaped")
    finally:
        os.close(descriptor)
    return True


def silence(log=None):
    """Puts /dev/null on 0, and log or /dev/null on 1 and 2."""
    null = os.open("/dev/null", os.O_RDWR)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log else null
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.set_inheritable(0, True)


def close_other_descriptors(keep=()):
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:
                pass  # the descriptor of the listing itself


def process_start_time(pid):
    """In clock ticks since boot; tells a process from a later one of the same number. None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None
