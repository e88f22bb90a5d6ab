# SPDX-License-Identifier: GPL-2.0-or-later
"""Holds what an image cannot, and counts on. refused.py KIND"""

import ctypes
import fcntl
import mmap
import os
import resource
import socket
import sys
import threading
import time

SYS_EXIT, SYS_IO_URING_SETUP, SYS_PTRACE_TRACEME = 60, 425, 0
libc = ctypes.CDLL(None, use_errno=True)


def io_uring():
    fd = libc.syscall(SYS_IO_URING_SETUP, 4, ctypes.create_string_buffer(120))
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return fd


def traced():
    traced_now, says = os.pipe()
    pid = os.fork()
    if pid == 0:
        libc.ptrace(SYS_PTRACE_TRACEME, 0, None, None)
        os.write(says, b"1")
        time.sleep(1000)
    os.read(traced_now, 1)
    return pid


def inotify():
    os.mkdir("watched")
    fd = libc.inotify_init()
    assert libc.inotify_add_watch(fd, b"watched", 0x200) > 0
    keep = os.open("watched", os.O_RDONLY)
    os.rmdir("watched")
    return fd, keep


def deleted():
    file = open("large", "wb")
    file.write(bytes(2 << 20))
    file.flush()
    os.unlink("large")
    return file


def renamed():
    file = open("one", "wb+")
    os.link("one", "other")
    os.unlink("one")
    return file


def mapped():
    file = renamed()
    file.truncate(mmap.PAGESIZE)
    with file:
        return mmap.mmap(file.fileno(), mmap.PAGESIZE, flags=mmap.MAP_PRIVATE, trackfd=False)


def message_queue():
    queue = ctypes.CDLL("librt.so.1").mq_open(b"/kept", os.O_CREAT | os.O_RDWR, 0o600, None)
    assert queue > 0
    return queue


def closed_queue():
    os.close(message_queue())


def sealed():
    file = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, mmap.PAGESIZE)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    return mmap.mmap(file, mmap.PAGESIZE, prot=mmap.PROT_READ)


def thread_with(flags):
    done = threading.Event()
    threading.Thread(target=lambda: (os.unshare(flags), done.set(), time.sleep(1000)), daemon=True).start()
    done.wait()


def own_descriptors():
    thread_with(os.CLONE_FILES)


def own_directory():
    thread_with(os.CLONE_FS)


def top():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return os.dup2(1, most - 1)


def half_ended(until=lambda: os.path.exists("go")):
    """A child of which the first thread has ended. Another goes on."""
    def goes_on():
        while not until():
            time.sleep(0.01)
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        threading.Thread(target=goes_on).start()
        libc.syscall(SYS_EXIT, 0)
    while "State:\tZ" not in open(f"/proc/{pid}/status", encoding="ascii").read():
        time.sleep(0.01)
    return pid


def ending():
    """One that takes a second for that."""
    end = time.monotonic() + 1
    return half_ended(lambda: time.monotonic() > end)


def other_family():
    return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


def name_space():
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET)


def local():
    os.makedirs("/tmp/scratch")
    return open("/tmp/scratch/file", "w", encoding="utf-8")


kept = {each.__name__: each for each in (io_uring, traced, inotify, deleted, renamed, mapped, message_queue, closed_queue, sealed, own_descriptors,
                                       own_directory, top, half_ended, ending, other_family, name_space, local)}.get(
    sys.argv[1], lambda: None)()
print("ready", flush=True)
area = mmap.mmap(-1, mmap.PAGESIZE)
while not os.path.exists("go"):
    time.sleep(0.01)
print("went on", flush=True)
