# SPDX-License-Identifier: GPL-2.0-or-later
"""Descriptors whose closing waits for ever: the agent never has one, and serves others."""

import array
import contextlib
import ctypes
import errno
import os
import re
import signal
import socket
import struct
import time

import pytest
import waiting
from virtualnode import ALICE, BOB, KEPT, LIST, Refused, wait_for

PIDFD_GETFD = 438
PROMPT = 5
LIMIT = 128  # per_user.closing, by default
libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(name="file")
def a_file_whose_closing_waits(own_agent, tmp_path):
    """After the test everybody has closed it who was asked to."""
    served = waiting.Waiting(str(tmp_path), ALICE)
    descriptor = served.open()
    try:
        yield descriptor, served
    finally:
        os.close(descriptor)
        served.close()
    assert own_agent.process.poll() is None


def others_are_served(agent):
    begun = time.monotonic()
    with agent.connect(BOB) as bob:
        bob.socket.settimeout(PROMPT)
        node, _ = bob.create(uid=BOB, gid=BOB)
        assert bob.run(node, ["/bin/echo", "served"]) == (0, "served\n")
        bob.destroy(node)
    assert time.monotonic() - begun < PROMPT


def agent_has(agent, served):
    """How many of its descriptors lead there. Names alone: looking at the file would ask its file system."""
    place = f"/proc/{agent.process.pid}/fd"
    out = 0
    for name in os.listdir(place):
        with contextlib.suppress(FileNotFoundError):
            out += os.readlink(os.path.join(place, name)).startswith(served.mounted)
    return out


def test_with_a_request_that_wants_none(own_agent, file):
    descriptor, served = file
    with own_agent.connect(ALICE) as alice:
        alice.ask(LIST, b"", [descriptor])
        wait_for(served.who_waits, "somebody to close it")
        assert own_agent.process.pid not in served.who_waits()
        assert not agent_has(own_agent, served)
        others_are_served(own_agent)
        assert alice.nodes() == {}


def test_with_garbage(own_agent, file):
    descriptor, served = file
    for packet in (b"x", struct.pack("=HHI", 1, 999, 1), b"x" * 100_000):
        with own_agent.connect(ALICE) as alice:
            alice.send_datagram(packet, [descriptor] * 4)
            assert alice.socket.recv(1) == b""
    others_are_served(own_agent)
    assert own_agent.process.pid not in served.who_waits()


def test_behind_a_request_that_costs_the_connection(own_agent, file):
    """It lies in the socket when the agent closes that."""
    descriptor, served = file
    with own_agent.connect(ALICE) as alice:
        own_agent.process.send_signal(signal.SIGSTOP)
        alice.send_datagram(b"x")
        alice.send_datagram(b"y", [descriptor])
        own_agent.process.send_signal(signal.SIGCONT)
        with contextlib.suppress(ConnectionResetError):
            assert alice.socket.recv(1) == b""
    others_are_served(own_agent)
    assert own_agent.process.pid not in served.who_waits()


def test_as_often_as_it_wants(own_agent, file):
    """Each has a process wait, and there are not more and more of them. Who sends still more hears why, and loses the connection."""
    descriptor, served = file
    with own_agent.connect(ALICE) as alice:
        said = (rf"uid {ALICE} has 1\d\d processes that wait for file systems to close what was sent already, "
                rf"and per_user.closing in singularity.yaml allows {LIMIT}")
        with pytest.raises(Refused, match=said) as refused:
            for _ in range(2 * LIMIT):
                alice.ask(LIST, b"", [descriptor])
        assert refused.value.code == errno.EDQUOT
        with pytest.raises((EOFError, ConnectionResetError, BrokenPipeError)):
            alice.nodes()
    assert re.search(said, own_agent.log())
    assert LIMIT / 2 < len(set(served.who_waits())) <= LIMIT
    others_are_served(own_agent)
    assert own_agent.process.pid not in served.who_waits()


def test_as_the_output_of_a_program(own_agent, file):
    """It is written to, as any file of a user's is, and closing it is the program's business."""
    descriptor, served = file
    with own_agent.connect(ALICE) as alice, open("/dev/null", "rb") as null:
        node, _ = alice.create(uid=ALICE, gid=ALICE)
        number, _ = alice.start(node, ["/bin/sleep", "1000"], [null.fileno(), descriptor, descriptor])
        assert not agent_has(own_agent, served)
        others_are_served(own_agent)
        assert own_agent.process.pid not in served.who_waits()
        alice.signal(node, number, 9)
        others_are_served(own_agent)
        # What is refused has been taken, too.
        with pytest.raises(Refused):
            alice.start("u1001-none", ["/bin/true"], [null.fileno(), descriptor, descriptor])
        with pytest.raises(Refused):
            alice.start(node, ["/no such program"], [null.fileno(), descriptor, descriptor])
        others_are_served(own_agent)
        assert own_agent.process.pid not in served.who_waits()


def descriptor_of_another(pid, number):
    pidfd = os.pidfd_open(pid)
    try:
        taken = libc.syscall(PIDFD_GETFD, pidfd, number, 0)
    finally:
        os.close(pidfd)
    return taken


def connection_of_init(pid):
    """Init's end of that to the agent: its user may trace it, and has all that it has."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        taken = descriptor_of_another(pid, int(name))
        if taken < 0:
            continue
        try:
            one = socket.socket(fileno=taken)
        except OSError:
            os.close(taken)
            continue
        with contextlib.suppress(OSError):
            one.getpeername()
            return one
        one.close()
    raise AssertionError("init has no connection")


def test_from_an_init_that_is_traced(own_agent, file):
    descriptor, served = file
    with own_agent.connect(ALICE) as alice:
        node, pid = alice.create(uid=ALICE, gid=ALICE)
        with connection_of_init(pid) as init:
            init.sendmsg([struct.pack("=HHI", 1, 7, 0)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])
        others_are_served(own_agent)
        assert own_agent.process.pid not in served.who_waits()
        wait_for(lambda: alice.nodes()[node][0] == "running", "the node to have a connection again")
        number, _ = alice.start(node, ["/bin/echo", "still there"], stdio=KEPT)
        assert alice.wait(node, number) == (0, False)
        assert alice.log(node, number) == b"still there\n"
