# SPDX-License-Identifier: GPL-2.0-or-later
"""A tree of processes that pass a token round through every kind of channel: Unix sockets (a pair, a path, an abstract name,
datagrams), TCP over loopback, pipes, a FIFO, and add to it in every kind of shared memory. tree.py STEPS PROGRESS"""

import ctypes
import fcntl
import mmap
import multiprocessing.shared_memory
import os
import socket
import struct
import sys

from common import Progress, mix

SIZE = 64
IPC_CREAT, IPC_RMID = 0o1000, 0
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p


def exactly(read, size):
    data = b""
    while len(data) < size:
        part = read(size - len(data))
        assert part, "the other end has gone"
        data += part
    return data


class Stream:
    def __init__(self, sender, receiver):
        self.sender, self.receiver = sender, receiver

    def send(self, token):
        self.sender.sendall(token)

    def receive(self):
        return exactly(self.receiver.recv, SIZE)


class Files(Stream):
    def send(self, token):
        assert os.write(self.sender, token) == SIZE

    def receive(self):
        return exactly(lambda size: os.read(self.receiver, size), SIZE)


def connected(family, address):
    listener = socket.socket(family)
    listener.bind(address)
    listener.listen()
    client = socket.socket(family)
    client.connect(listener.getsockname())
    server, _ = listener.accept()
    return Stream(client, server), listener


def channels():
    keep = []
    found = [Stream(*socket.socketpair()), Stream(*socket.socketpair(type=socket.SOCK_DGRAM))]
    for family, address in ((socket.AF_UNIX, os.path.join(os.getcwd(), "socket")), (socket.AF_UNIX, "\0host-image-test"),
                            (socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET6, ("::1", 0))):
        channel, listener = connected(family, address)
        found.append(channel)
        keep.append(listener)  # it stays: a restore must bring it back as well
    read_end, write_end = os.pipe()
    found.append(Files(write_end, read_end))
    os.mkfifo("fifo")
    fifo = os.open("fifo", os.O_RDWR)
    found.append(Files(fifo, fifo))
    return found, keep


class Memory:
    """Four counters that all processes share, each in memory of another kind."""

    def __init__(self):
        self.anonymous = mmap.mmap(-1, mmap.PAGESIZE)
        self.posix = multiprocessing.shared_memory.SharedMemory(create=True, size=mmap.PAGESIZE)
        self.memfd = os.memfd_create("shared")
        os.ftruncate(self.memfd, mmap.PAGESIZE)
        self.of_memfd = mmap.mmap(self.memfd, mmap.PAGESIZE)
        self.id = libc.shmget(0, mmap.PAGESIZE, IPC_CREAT | 0o600)
        address = libc.shmat(self.id, None, 0)
        self.system_v = (ctypes.c_char * mmap.PAGESIZE).from_address(address)

    def add(self, value):
        for area in (self.anonymous, self.posix.buf, self.of_memfd, self.system_v):
            (old,) = struct.unpack_from("<Q", area)
            struct.pack_into("<Q", area, 0, (old * 31 + value) % 2**64)

    def values(self):
        return [struct.unpack_from("<Q", area)[0] for area in (self.anonymous, self.posix.buf, self.of_memfd, self.system_v)]

    def remove(self):
        libc.shmctl(self.id, IPC_RMID, None)
        self.posix.close()
        self.posix.unlink()


def link(number, steps, incoming, outgoing, memory):
    state = bytes([number])
    for step in range(steps):
        token = incoming.receive()
        state = mix(state, token)
        memory.add(step * (number + 1))
        outgoing.send(state + token[:32])


def main(steps, progress):
    progress = Progress(progress)
    ways, keep = channels()
    memory = Memory()
    lock = open("lock", "w", encoding="utf-8")
    fcntl.flock(lock, fcntl.LOCK_EX)
    children = []
    for number in range(len(ways) - 1):
        pid = os.fork()
        if pid == 0:
            link(number, steps, ways[number], ways[number + 1], memory)
            os._exit(0)
        children.append(pid)
    token = b"a" * SIZE
    for _ in range(steps):
        ways[0].send(token)
        token = ways[-1].receive()
        progress.step()
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    with open("lock", encoding="utf-8") as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            print("the lock is lost")
        except BlockingIOError:
            print("the lock is held")
    print(token.hex(), memory.values(), len(keep))
    memory.remove()


main(int(sys.argv[1]), sys.argv[2])
