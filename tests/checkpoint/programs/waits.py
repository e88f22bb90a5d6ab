# SPDX-License-Identifier: GPL-2.0-or-later
"""Threads that wait in the system calls that a stop interrupts: waits.py GO_FILE. Each says how its call ended; none handles EINTR, and
none gets a signal. They end their calls when GO_FILE exists. USR1: a handler, after which poll() ends with EINTR as it always does."""

import ctypes
import errno
import os
import signal
import socket
import struct
import sys
import threading
import time

HOUR_S = 3600
HOUR_MS = HOUR_S * 1000
libc = ctypes.CDLL(None, use_errno=True)


class PollFd(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


class Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def say(name, result):
    print(f"{name}: {result if result >= 0 else errno.errorcode[ctypes.get_errno()]}", flush=True)


class Event(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("events", ctypes.c_uint32), ("data", ctypes.c_uint64)]


reader, writer = os.pipe()
near, far = socket.socketpair()
near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", HOUR_S, 0))
semaphore = (ctypes.c_long * 16)()
libc.sem_init(semaphore, 0, 0)
gone_on = threading.Event()


def poll():
    say("poll", libc.poll(ctypes.byref(PollFd(reader, 1, 0)), 1, HOUR_MS))


def epoll():
    epoll_fd = libc.epoll_create1(0)
    libc.epoll_ctl(epoll_fd, 1, reader, ctypes.byref(Event(1, 0)))
    say("epoll", libc.epoll_wait(epoll_fd, ctypes.byref(Event()), 1, HOUR_MS))


def futex():
    say("futex", libc.sem_timedwait(semaphore, ctypes.byref(Timespec(int(time.time()) + HOUR_S, 0))))


def receive():
    say("receive", libc.recv(near.fileno(), ctypes.create_string_buffer(1), 1, 0))


IO_SETUP, IO_GETEVENTS, IO_SUBMIT, WRITE = 206, 208, 209, 1  # on x86-64
ring = ctypes.c_ulong(0)
nowhere = os.open("/dev/null", os.O_WRONLY)


def events():
    say("events", libc.syscall(IO_GETEVENTS, ring, ctypes.c_long(1), ctypes.c_long(1), ctypes.create_string_buffer(32), ctypes.byref(Timespec(HOUR_S, 0))))


def submit():
    """A write, which ends at once: struct iocb of linux/aio_abi.h."""
    data = ctypes.create_string_buffer(1)
    request = ctypes.create_string_buffer(struct.pack("QIIHhIQQqQII", 0, 0, 0, WRITE, 0, nowhere, ctypes.addressof(data), 1, 0, 0, 0, 0), 64)
    libc.syscall(IO_SUBMIT, ring, ctypes.c_long(1), ctypes.byref(ctypes.c_void_p(ctypes.addressof(request))))


def sleep():
    while not gone_on.is_set():
        result = libc.nanosleep(ctypes.byref(Timespec(0, 300_000_000)), None)
        if result:
            return say("sleep", result)
    say("sleep", 0)


def main():
    signal.signal(signal.SIGUSR1, lambda *_: print("a signal", flush=True))
    libc.syscall(IO_SETUP, 1, ctypes.byref(ring))
    threads = [threading.Thread(target=each) for each in (poll, epoll, futex, receive, events, sleep)]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # the main thread alone is to have it
    for thread in threads:
        thread.start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    print("all wait", flush=True)
    say("main", libc.poll(None, 0, HOUR_MS))  # until the signal
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    os.write(writer, b"1")
    libc.sem_post(semaphore)
    far.send(b"1")
    submit()
    gone_on.set()
    for thread in threads:
        thread.join()


main()
