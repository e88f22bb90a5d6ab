# SPDX-License-Identifier: GPL-2.0-or-later
"""Code that a program compiles while it runs, in shared memory that it may run and not write to, as PHP and .NET have it: below all other
code of the process, of a file and of none. compiled.py STEPS PROGRESS"""

import ctypes
import mmap
import os
import struct
import sys

from common import Progress

SHARED, ANONYMOUS, FIXED_NOREPLACE = 1, 0x20, 0x100000
PLACES = (0x200000, 0x300000)  # below where a program is put
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def mapped(place, rights, flags, file):
    found = libc.mmap(place, mmap.PAGESIZE, rights, SHARED | FIXED_NOREPLACE | flags, file, 0)
    assert found == place, os.strerror(ctypes.get_errno())


class OfFile:
    """Two mappings of a file: one is written to, the other is run."""

    def __init__(self):
        self.file = os.memfd_create("code")
        os.ftruncate(self.file, mmap.PAGESIZE)
        mapped(PLACES[0], mmap.PROT_READ | mmap.PROT_EXEC, 0, self.file)
        self.memory = mmap.mmap(self.file, mmap.PAGESIZE)
        self.run = ctypes.CFUNCTYPE(ctypes.c_int)(PLACES[0])

    def write(self, code):
        self.memory[:len(code)] = code


class OfNone:
    """One mapping, whose rights change."""

    def __init__(self):
        mapped(PLACES[1], mmap.PROT_READ | mmap.PROT_EXEC, ANONYMOUS, -1)
        self.run = ctypes.CFUNCTYPE(ctypes.c_int)(PLACES[1])

    def write(self, code):
        assert libc.mprotect(PLACES[1], mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
        ctypes.memmove(PLACES[1], code, len(code))
        assert libc.mprotect(PLACES[1], mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) == 0


def main(steps, progress):
    progress = Progress(progress)
    both, total = (OfFile(), OfNone()), 0
    for step in range(steps):
        for each in both:
            each.write(b"\xb8" + struct.pack("<i", step) + b"\xc3")  # mov $step, %eax; ret
        progress.step()
        for each in both:
            result = each.run()
            assert result == step, (result, step)
            total += result
    print(total)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
