# SPDX-License-Identifier: GPL-2.0-or-later
"""Holds what an image cannot, and counts on. refused.py KIND"""

import ctypes
import mmap
import os
import socket
import sys
import time

SYS_IO_URING_SETUP, SYS_PTRACE_TRACEME = 425, 0
libc = ctypes.CDLL(None, use_errno=True)


def io_uring():
    fd = libc.syscall(SYS_IO_URING_SETUP, 4, ctypes.create_string_buffer(120))
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return fd


def traced():
    pid = os.fork()
    if pid == 0:
        libc.ptrace(SYS_PTRACE_TRACEME, 0, None, None)
        time.sleep(1000)
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


def other_family():
    return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


def name_space():
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET)


def local():
    os.makedirs("/tmp/scratch")
    return open("/tmp/scratch/file", "w", encoding="utf-8")


kept = {each.__name__: each for each in (io_uring, traced, inotify, deleted, renamed, mapped, other_family, name_space, local)}.get(
    sys.argv[1], lambda: None)()
print("ready", flush=True)
area = mmap.mmap(-1, mmap.PAGESIZE)
while not os.path.exists("go"):
    time.sleep(0.01)
print("went on", flush=True)
