# SPDX-License-Identifier: GPL-2.0-or-later
"""Asynchronous I/O with the kernel's rings (io_setup(2)), as databases have it: blocks that are written and read back, past the page cache
where the file system can. aio.py STEPS PROGRESS"""

import ctypes
import mmap
import os
import sys

from common import Progress, mix

SETUP, DESTROY, GETEVENTS, SUBMIT = 206, 207, 208, 209  # on x86-64
READ, WRITE = 0, 1
BLOCK, BLOCKS = 4096, 64
FIRST = 8  # requests of the first ring at a time
libc = ctypes.CDLL(None, use_errno=True)


class Request(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("opcode", ctypes.c_uint16),
                ("priority", ctypes.c_int16), ("file", ctypes.c_uint32), ("buffer", ctypes.c_uint64), ("size", ctypes.c_uint64),
                ("offset", ctypes.c_int64), ("reserved", ctypes.c_uint64), ("more", ctypes.c_uint32), ("event", ctypes.c_uint32)]


class Event(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("request", ctypes.c_uint64), ("result", ctypes.c_int64), ("more", ctypes.c_int64)]


def call(number, *arguments):
    done = libc.syscall(number, *arguments)
    if done < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return done


class Ring:
    def __init__(self, requests):
        self.context = ctypes.c_ulong(0)
        call(SETUP, requests, ctypes.byref(self.context))
        self.ended = 0

    def submit(self, *requests):
        pointers = (ctypes.POINTER(Request) * len(requests))(*(ctypes.pointer(one) for one in requests))
        assert call(SUBMIT, self.context, ctypes.c_long(len(requests)), pointers) == len(requests)

    def results(self, count):
        """Of requests that have ended, by the number that they were given."""
        events = (Event * count)()
        assert call(GETEVENTS, self.context, ctypes.c_long(count), ctypes.c_long(count), events, None) == count
        self.ended += count
        return {one.data: one.result for one in events}

    def end(self):
        call(DESTROY, self.context)


class File:
    def __init__(self, name):
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        try:
            self.number = os.open(name, flags | os.O_DIRECT, 0o600)
        except OSError:
            self.number = os.open(name, flags, 0o600)
        self.memory = mmap.mmap(-1, BLOCK * BLOCKS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def request(self, opcode, block):
        return Request(data=block, opcode=opcode, file=self.number, buffer=self.address + BLOCK * block, size=BLOCK, offset=BLOCK * block)

    def put(self, block, text):
        self.memory[BLOCK * block:BLOCK * block + len(text)] = text

    def get(self, block, size):
        return self.memory[BLOCK * block:BLOCK * block + size]


def main(steps, progress):
    progress = Progress(progress)
    rings, file, digest = (Ring(FIRST), Ring(BLOCKS)), File(progress.name + ".blocks"), b""
    for step in range(steps):
        ring, chosen = rings[step % 2], [(step + 7 * turn) % BLOCKS for turn in range(1 + step % FIRST)]
        written = {block: mix(digest, b"%d %d" % (step, block)) for block in chosen}
        for opcode in (WRITE, READ):
            for block, text in written.items():
                file.put(block, text if opcode == WRITE else bytes(len(text)))
            ring.submit(*(file.request(opcode, block) for block in chosen))
            assert ring.results(len(chosen)) == dict.fromkeys(chosen, BLOCK)
        assert {block: file.get(block, len(text)) for block, text in written.items()} == written
        digest = mix(digest, *written.values())
        progress.step()
    print(digest.hex(), [ring.ended for ring in rings])
    for ring in rings:
        ring.end()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
