# SPDX-License-Identifier: GPL-2.0-or-later
"""A user's own file system (FUSE) of one file. Processes of root's that close it, but for the test itself, wait until the server is killed."""

import contextlib
import ctypes
import errno
import os
import signal
import struct
import subprocess
import sys
import time

NAME = b"file"
LARGEST = 1 << 16
HEADER = struct.Struct("=IIQQIIII")
LOOKUP, GETATTR, OPEN, RELEASE, FLUSH, INIT = 1, 3, 14, 18, 25, 26
UNANSWERED = (2, 36, 42)  # forget, interrupt, batch_forget
FOREVER = (3600, 3600, 0, 0)
NOSUID_NODEV = 2 | 4
libc = ctypes.CDLL(None, use_errno=True)


def attributes(number):
    mode = 0o040755 if number == 1 else 0o100666
    return struct.pack("=QQQQQQIIIIIIIIII", number, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(kind, number, data):
    """(errno, what follows)"""
    if kind == INIT:
        return 0, struct.pack("=IIIIHHII", 7, 31, LARGEST, 0, 12, 10, LARGEST, 1) + bytes(32)
    if kind == LOOKUP:
        if data.rstrip(b"\0") != NAME:
            return errno.ENOENT, b""
        return 0, struct.pack("=QQ", 2, 0) + struct.pack("=QQII", *FOREVER) + attributes(2)
    if kind == GETATTR:
        return 0, struct.pack("=QII", 3600, 0, 0) + attributes(number)
    if kind == OPEN:
        return 0, struct.pack("=QII", 1, 0, 0)
    if kind in (RELEASE, FLUSH):
        return 0, b""
    return errno.ENOSYS, b""


def serve(device, served, waits):
    """waits: a file to which each process that waits is written."""
    while True:
        try:
            request = os.read(device, LARGEST + 8192)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            if error.errno in (errno.ENOENT, errno.EINTR):
                continue
            raise
        _, kind, unique, number, uid, _, pid, _ = HEADER.unpack_from(request)
        if kind in UNANSWERED:
            continue
        if kind == FLUSH and uid == 0 and pid != served:
            with open(waits, "a", encoding="utf-8") as file:
                file.write(f"{pid}\n")
            continue
        code, out = answer(kind, number, request[HEADER.size:])
        with contextlib.suppress(FileNotFoundError):
            os.write(device, struct.pack("=IiQ", 16 + len(out), -code, unique) + out)


class Waiting:
    """Mounted until close()."""

    def __init__(self, place, uid):
        self.mounted, self.waits = os.path.join(place, "mounted"), os.path.join(place, "waits")
        os.mkdir(self.mounted)
        device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={device},rootmode=40000,user_id={uid},group_id={uid},allow_other"
        if libc.mount(b"waiting", os.fsencode(self.mounted), b"fuse", NOSUID_NODEV, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), self.mounted)
        self.server = subprocess.Popen([sys.executable, os.path.abspath(__file__), str(device), str(os.getpid()), self.waits], pass_fds=(device,),
                                       stdin=subprocess.DEVNULL)
        os.close(device)

    def open(self):
        return os.open(os.path.join(self.mounted, os.fsdecode(NAME)), os.O_WRONLY | os.O_CLOEXEC)

    def who_waits(self):
        """Numbers of processes that have closed it, in the order in which they have."""
        try:
            with open(self.waits, encoding="utf-8") as file:
                return [int(line) for line in file]
        except FileNotFoundError:
            return []

    def close(self):
        """Whoever waits hears of an error: the server's end ends the connection."""
        with contextlib.suppress(ProcessLookupError):
            self.server.send_signal(signal.SIGKILL)
        self.server.wait(60)
        until = time.monotonic() + 60
        while subprocess.run(["umount", "-l", self.mounted], check=False).returncode != 0:
            assert time.monotonic() < until, "it stays mounted"
            time.sleep(0.1)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
