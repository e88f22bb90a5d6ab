# SPDX-License-Identifier: GPL-2.0-or-later
"""System calls that wait while their node is saved: they go on waiting. Only a signal ends one with EINTR."""

import contextlib
import os
import shutil
import signal
import subprocess

import nodes

# Numbers of system calls on x86-64: what the threads of waits.py wait in.
POLL, RECVFROM, FUTEX, IO_GETEVENTS, RESTART_SYSCALL, EPOLL_WAIT = 7, 45, 202, 208, 219, 232
EXPECTED = ["all wait", "epoll: 1", "events: 1", "futex: 0", "poll: 1", "receive: 1", "sleep: 0"]


def call_of(pid, thread):
    """The number of the system call in which a thread is; None where it is in none, or gone."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/task/{thread}/syscall", encoding="ascii") as call:
        return int(call.read().split()[0])
    return None


def calls(pid):
    """The numbers of the system calls in which the threads of a process are."""
    return [call_of(pid, thread) for thread in os.listdir(f"/proc/{pid}/task")]


def state(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def program(node):
    """The process id of waits.py."""
    return max(node.processes(), key=lambda pid: len(os.listdir(f"/proc/{pid}/task")))


def started(place):
    shutil.copy(os.path.join(nodes.HERE, "programs", "waits.py"), place.path("waits.py"))
    node = place.start("python3", "waits.py", "go")
    place.wait_for_output("all wait")
    place.wait_for(lambda: set(calls(program(node))) >= {POLL, RECVFROM, FUTEX, IO_GETEVENTS, EPOLL_WAIT} and calls(program(node)).count(POLL) == 2,
                   "all threads to wait")
    return node


def resume(node):
    subprocess.run([nodes.DRIVER, "resume", str(node.init)], check=True, timeout=nodes.PATIENCE)


def ends(place, node):
    """The signal ends a call; the others end by what they wait for."""
    place.wait_for_output("main: EINTR")
    with open(place.path("go"), "w", encoding="ascii"):
        pass
    assert node.wait() == 0, place.output()
    assert sorted(place.output().splitlines()) == sorted([*EXPECTED, "a signal", "main: EINTR"])


def ends_by_signal(place, node):
    pid = program(node)
    # A signal that comes before a restored thread is back in its call is handled there, and then nothing ends the call.
    place.wait_for(lambda: call_of(pid, pid) in (POLL, RESTART_SYSCALL), "the main thread to wait again")
    os.kill(pid, signal.SIGUSR1)
    ends(place, node)


def test_restored_twice(place):
    node = started(place)
    for _ in range(2):
        images, _ = place.dump(node)
        node.kill()
        node = place.restore(images)
    ends_by_signal(place, node)


def test_resumed_twice(place):
    node = started(place)
    for _ in range(2):
        place.dump(node, after="stop")
        resume(node)
    ends_by_signal(place, node)


def test_resumed_then_restored(place):
    node = started(place)
    place.dump(node, after="stop")
    resume(node)
    images, _ = place.dump(node)
    node.kill()
    ends_by_signal(place, place.restore(images))


def test_signal_while_it_stands_still(place):
    """It has a handler, after which the call must end: a program that looks at a flag then would wait for ever otherwise."""
    node = started(place)
    place.dump(node, after="stop")
    os.kill(program(node), signal.SIGUSR1)
    resume(node)
    ends(place, node)


def test_signal_in_the_image(place):
    """One that was sent to a program that had been stopped waits in the image."""
    node = started(place)
    pid = program(node)
    os.kill(pid, signal.SIGSTOP)
    place.wait_for(lambda: state(pid) == "T", "the program to stop")
    os.kill(pid, signal.SIGUSR1)
    images, _ = place.dump(node)
    node.kill()
    node = place.restore(images)
    place.wait_for(lambda: state(program(node)) == "T", "the program to be stopped again")
    os.kill(program(node), signal.SIGCONT)
    ends(place, node)
