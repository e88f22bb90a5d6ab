# SPDX-License-Identifier: GPL-2.0-or-later
"""Timers of timer_create(2) that signal one thread and count its processor time, as Go's profiler has one for each of its threads:
each still counts what its own thread computes. clocks.py STEPS PROGRESS"""

import ctypes
import signal
import sys
import threading
import time

from common import Progress, mix

CLOCK_THREAD_CPUTIME_ID, SIGEV_THREAD_ID = 3, 4
LONG = 10_000  # seconds of processor time
libc = ctypes.CDLL(None, use_errno=True)


class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("number", ctypes.c_int), ("notify", ctypes.c_int), ("thread", ctypes.c_int),
                ("rest", ctypes.c_int * 11)]


class Times(ctypes.Structure):
    _fields_ = [("interval", ctypes.c_long * 2), ("value", ctypes.c_long * 2)]


class Timer:
    """Of the calling thread, and of its time."""

    def __init__(self):
        event = Event(number=signal.SIGPROF, notify=SIGEV_THREAD_ID, thread=threading.get_native_id())
        self.timer = ctypes.c_void_p()
        assert libc.timer_create(CLOCK_THREAD_CPUTIME_ID, ctypes.byref(event), ctypes.byref(self.timer)) == 0
        assert libc.timer_settime(self.timer, 0, ctypes.byref(Times(value=(LONG, 0))), None) == 0

    def left(self):
        times = Times()
        assert libc.timer_gettime(self.timer, ctypes.byref(times)) == 0
        return times.value[0] + times.value[1] / 1e9


class Other(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.timer, self.begun, self.go, self.done = None, threading.Event(), threading.Event(), threading.Event()
        self.start()
        self.begun.wait()

    def run(self):
        self.timer = Timer()
        self.begun.set()
        self.go.wait()
        end, state = time.thread_time() + 0.5, b""
        while time.thread_time() < end:
            state = mix(state)
        self.done.set()


def main(steps, progress):
    progress = Progress(progress)
    signal.signal(signal.SIGPROF, signal.SIG_IGN)
    first, other = Timer(), Other()
    for _ in range(steps):
        progress.step()
    before = first.left(), other.timer.left()
    other.go.set()
    other.done.wait()
    after = first.left(), other.timer.left()
    print("the first thread's timer stands still:", before[0] - after[0] < 0.25)
    print("the other's goes on:", before[1] - after[1] > 0.4)


main(int(sys.argv[1]), sys.argv[2])
