# SPDX-License-Identifier: GPL-2.0-or-later
"""The state of a process that is neither memory nor a channel: timers, pending signals, masks, event descriptors, a terminal, deleted
files, a working directory, a file position, limits, who is at the other end of a socket. state.py STEPS PROGRESS"""

import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import termios
import time
import tty

from common import Progress


def peer(end):
    """Whether this process is at the other end of a Unix socket."""
    return struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)) == (os.getpid(), os.getuid(), os.getgid())


def connected_to(listener, name=None):
    client = socket.socket(socket.AF_UNIX)
    client.connect(name or listener.getsockname())
    return client, listener.accept()[0]


def answers(listener, name):
    """Whether it is what a client finds by the name."""
    client, server = connected_to(listener, name)
    server.sendall(b"yes")
    return client.recv(3) == b"yes"


def listening(name, give):
    """As supervisord makes its socket: it has its name only when it listens."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name + ".new")
    listener.listen()
    give(name + ".new", name)
    return listener


def link(source, name):
    os.link(source, name)
    os.unlink(source)


def main(steps, progress):
    progress = Progress(progress)
    facts = {}

    ticks = []
    signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    timer = os.timerfd_create(time.CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK)
    os.timerfd_settime(timer, initial=0.05, interval=0.05)

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGRTMIN + 3])
    os.kill(os.getpid(), signal.SIGUSR1)
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGRTMIN + 3)  # real-time signals queue: three stay three

    event = os.eventfd(7)
    poll = select.epoll()
    poll.register(event, select.EPOLLIN)

    master, slave = os.openpty()
    tty.setraw(slave)
    size = os.get_terminal_size(slave)
    os.write(master, b"typed before the checkpoint")

    os.makedirs("deep/er", exist_ok=True)
    os.chdir("deep/er")
    with open("data", "wb") as file:
        file.write(bytes(range(256)) * 1000)
    data = open("data", "rb")
    data.seek(12345)

    gone = open("gone", "w+b")
    gone.write(b"nobody can open this any more" * 100)
    gone.flush()
    os.unlink("gone")

    private = open("/tmp/in-the-node", "w+b")
    private.write(b"a file of the node's own /tmp")
    private.flush()

    pair = socket.socketpair()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0listener")
    listener.listen()
    connected = connected_to(listener)
    named = {os.path.join(place, give.__name__): give for place in (os.getcwd(), "/tmp") for give in (os.rename, link)}
    named = {name: listening(name, give) for name, give in named.items()}
    named["relative"] = listening("relative", link)
    client = connected_to(named["/tmp/link"], "/tmp/link")

    resource.setrlimit(resource.RLIMIT_CORE, (4096, 8192))
    os.umask(0o027)

    zombie = os.fork()
    if zombie == 0:
        os._exit(42)

    for _ in range(steps):
        progress.step()

    facts["timer goes on"] = len(ticks) > 0
    before = len(ticks)
    time.sleep(0.3)
    facts["timer still goes on"] = len(ticks) > before
    signal.setitimer(signal.ITIMER_REAL, 0)  # a tick while the interpreter ends would kill it
    facts["timerfd"] = int.from_bytes(os.read(timer, 8), "little") > 0
    facts["pending"] = sorted(int(each) for each in signal.sigpending())
    count = 0
    while signal.sigtimedwait([signal.SIGRTMIN + 3], 0):
        count += 1
    facts["queued"] = count
    facts["epoll"] = [(fd == event, what) for fd, what in poll.poll(0)]
    facts["eventfd"] = os.eventfd_read(event)
    facts["terminal"] = (os.read(slave, 100), termios.tcgetattr(slave)[3] & termios.ECHO, os.get_terminal_size(slave) == size)
    facts["directory"] = os.path.basename(os.getcwd())
    facts["position"] = data.read(4).hex()
    gone.seek(0)
    facts["deleted"] = (len(gone.read()), os.fstat(gone.fileno()).st_nlink)
    private.seek(0)
    facts["private"] = private.read()
    facts["peers"] = [peer(end) for end in (*pair, *connected, *connected_to(listener))]
    client[1].sendall(b"over")
    facts["renamed sockets"] = [answers(listener, name) for name, listener in named.items()] + [client[0].recv(4)]
    facts["names"] = sorted(os.listdir())
    facts["limit"] = resource.getrlimit(resource.RLIMIT_CORE)
    facts["umask"] = oct(os.umask(0))
    facts["zombie"] = os.waitstatus_to_exitcode(os.waitpid(zombie, 0)[1])
    facts["standard input"] = stat.S_ISCHR(os.fstat(0).st_mode)
    facts["name"] = os.uname().nodename
    for name, value in facts.items():
        print(name, value)


main(int(sys.argv[1]), sys.argv[2])
