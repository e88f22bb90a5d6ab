# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes files in one of the ways in which programs do, a step at a time: writer.py KIND STEPS, in the directory for the files.
A step is begun when the file `allowed` beside it says a number above it; the file `done` says how many are done.
writer.py content DIRECTORY... prints what is in such directories."""

import contextlib
import logging.handlers
import mmap
import os
import sqlite3
import sys
import time


def line(number):
    return f"step {number} " + "x" * (number % 7 * 10) + "\n"


class Log:
    """Opened with a mode of open(2), written at its position."""

    def __init__(self, flags):
        self.file = os.open("log", flags | os.O_CREAT, 0o644)

    def step(self, number):
        os.write(self.file, line(number).encode())

    def end(self):
        os.close(self.file)


class Reading(Log):
    """Appends, and reads all of what it has."""

    def step(self, number):
        super().step(number)
        os.lseek(self.file, 0, os.SEEK_SET)
        content = b""
        while part := os.read(self.file, 1 << 16):
            content += part
        assert content == "".join(map(line, range(number + 1))).encode(), content


class InPlace(Log):
    def step(self, number):
        os.pwrite(self.file, line(number).encode().ljust(128), number % 3 * 128)


class Truncating(Log):
    def step(self, number):
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, line(number).encode() * (5 - number % 5), 0)


class Mapped(Log):
    def __init__(self, flags):
        super().__init__(flags)
        os.ftruncate(self.file, 1 << 16)
        self.memory = mmap.mmap(self.file, 1 << 16)
        os.close(self.file)

    def step(self, number):
        self.memory[number * 100:number * 100 + 20] = line(number).encode()[:7].ljust(20)
        self.memory[0] = number

    def end(self):
        self.memory.close()


class Sparse(Log):
    def step(self, number):
        os.pwrite(self.file, line(number).encode(), number % 5 << 30)


class Replaced:
    """A new file takes the place of the old, which stays open until then."""

    def __init__(self, _flags):
        self.file = None

    def step(self, number):
        new = open("log.tmp", "w+", encoding="ascii")  # pylint: disable=consider-using-with
        new.write(line(number) * (number + 1))
        new.flush()
        os.rename("log.tmp", "log")
        if self.file:
            self.file.close()
        self.file = new

    def end(self):
        self.file.close()


class Rotated:
    def __init__(self, keep):
        self.handler = logging.handlers.RotatingFileHandler("log", maxBytes=150, backupCount=keep)

    def step(self, number):
        self.handler.emit(logging.makeLogRecord({"msg": line(number).strip()}))

    def end(self):
        self.handler.close()


class BothRotated:
    """Keeps the last two open: neither may take the place of the other."""

    def __init__(self, _flags):
        self.new = open("log", "w", encoding="ascii")  # pylint: disable=consider-using-with
        self.old = open("log.1", "w", encoding="ascii")  # pylint: disable=consider-using-with

    def step(self, number):
        self.new.write(line(number))
        self.new.flush()
        self.old.write(f"late {line(number)}")
        self.old.flush()
        if number % 3 == 2:
            with contextlib.suppress(FileNotFoundError):
                os.rename("log.2", "log.3")
            os.rename("log.1", "log.2")
            os.rename("log", "log.1")
            self.old.close()
            self.old = self.new
            self.new = open("log", "w", encoding="ascii")  # pylint: disable=consider-using-with

    def end(self):
        self.new.close()
        self.old.close()


class Swapped:
    """Two files that are open change their names."""

    def __init__(self, _flags):
        self.files = [open(name, "w", encoding="ascii") for name in ("log", "other")]  # pylint: disable=consider-using-with

    def step(self, number):
        for each, file in enumerate(self.files):
            file.write(f"{each} {line(number)}")
            file.flush()
        if number == 6:
            os.rename("log", "third")
            os.rename("other", "log")
            os.rename("third", "other")

    def end(self):
        for file in self.files:
            file.close()


class Deleted(Log):
    """Deletes its log in the middle, and writes to it until the end."""

    def step(self, number):
        super().step(number)
        if number == 7:
            os.unlink("log")


class Renewed(Log):
    """Likewise, but goes on with a new one."""

    def step(self, number):
        super().step(number)
        if number == 6:
            os.unlink("log")
            os.close(self.file)
            self.file = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


class Moved(Log):
    def step(self, number):
        super().step(number)
        if number == 6:
            os.rename("log", "log.old")


class Database:
    def __init__(self, mode, every):
        self.base = sqlite3.connect("base", isolation_level=None)
        self.every = every
        assert self.base.execute(f"PRAGMA journal_mode={mode}").fetchone()[0].upper() == mode
        self.base.execute("CREATE TABLE IF NOT EXISTS steps (number INTEGER, text TEXT)")

    def step(self, number):
        if number % self.every == 0:
            self.base.execute("PRAGMA cache_size=1")  # so that it writes before it commits
            self.base.execute("BEGIN")
        self.base.executemany("INSERT INTO steps VALUES (?, ?)", [(number, line(number) * 50)] * 20)
        if number % self.every == self.every - 1:
            self.base.execute("COMMIT")

    def end(self):
        self.base.close()


class Four:
    """Processes that append to one file."""

    def __init__(self, flags):
        self.files = [os.open("log", flags | os.O_CREAT, 0o644) for _ in range(4)]

    def step(self, number):
        for each, file in enumerate(self.files):
            child = os.fork()
            if child == 0:
                os.write(file, f"{each}: {line(number)}".encode())
                os._exit(0)
            os.waitpid(child, 0)

    def end(self):
        for file in self.files:
            os.close(file)


W = os.O_WRONLY | os.O_TRUNC
KINDS = {
    "w": lambda: Log(W),
    "a": lambda: Log(os.O_WRONLY | os.O_APPEND),
    "a+": lambda: Reading(os.O_RDWR | os.O_APPEND),
    "r+": lambda: Log(os.O_RDWR),
    "in place": lambda: InPlace(os.O_RDWR),
    "truncated": lambda: Truncating(os.O_RDWR),
    "mapped": lambda: Mapped(os.O_RDWR),
    "sparse": lambda: Sparse(os.O_RDWR),
    "replaced": lambda: Replaced(W),
    "rotated": lambda: Rotated(9),
    "rotated away": lambda: Rotated(2),
    "both rotated": lambda: BothRotated(W),
    "swapped": lambda: Swapped(W),
    "deleted": lambda: Deleted(W),
    "renewed": lambda: Renewed(W),
    "moved": lambda: Moved(W),
    "journal": lambda: Database("DELETE", 1),
    "open transaction": lambda: Database("DELETE", 3),
    "persistent journal": lambda: Database("PERSIST", 3),
    "wal": lambda: Database("WAL", 3),
    "four": lambda: Four(os.O_WRONLY | os.O_APPEND),
}


def number_in(name):
    with contextlib.suppress(OSError, ValueError):
        with open(name, encoding="ascii") as file:
            return int(file.read())
    return 0


def content(directory):
    """name -> content. Of a database what is in it: its pages have random numbers."""
    found = {}
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if name == "base":
            base = sqlite3.connect(path)
            found[name] = base.execute("PRAGMA integrity_check").fetchall(), base.execute("SELECT * FROM steps").fetchall()
            base.close()
        elif not name.startswith("base-"):
            with open(path, "rb") as file:
                about = os.fstat(file.fileno())
                parts = [(at, os.pread(file.fileno(), 1 << 16, at)) for at in range(0, about.st_size, 1 << 30)]
                found[name] = [(at, part) for at, part in parts if part.strip(b"\0")] + [about.st_size, oct(about.st_mode)]
    return found


def main():
    if sys.argv[1] == "content":
        for directory in sys.argv[2:]:
            print(directory, content(directory))
        return
    kind, steps = sys.argv[1], int(sys.argv[2])
    writer = KINDS[kind]()
    for number in range(steps):
        while number_in("../allowed") <= number:
            time.sleep(0.005)
        writer.step(number)
        with open("../done.new", "w", encoding="ascii") as file:
            file.write(str(number + 1))
        os.rename("../done.new", "../done")
    writer.end()


if __name__ == "__main__":
    main()
