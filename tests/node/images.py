# SPDX-License-Identifier: GPL-2.0-or-later
"""Root file systems for nodes, made on the spot."""

import glob
import os
import re
import shutil
import struct
import subprocess

# What a small root has of the machine's own programs, with their libraries.
PROGRAMS = ("sh", "cat", "chmod", "dirname", "env", "id", "ls", "mkdir", "pwd", "rm", "sleep", "stat", "touch", "uname", "grep", "readlink")
STATIC = r"""
#include <stdio.h>
#include <unistd.h>
int main(void) {
    char line[64];
    puts("static");
    fflush(stdout);
    for (int number = 1; fgets(line, sizeof line, stdin); ++number) {
        printf("line %d of %d: %s", number, (int)getpid(), line);
        fflush(stdout);
    }
    return 7;
}
"""


def small(top, user):
    """A shell and some programs, all of it the user's."""
    for name in ("usr/bin", "usr/lib", "etc", "proc", "dev", "sys", "tmp", "var/tmp", "home"):
        os.makedirs(os.path.join(top, name))
    for link, target in (("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib")):
        os.symlink(target, os.path.join(top, link))
    for program in PROGRAMS:
        add(top, shutil.which(program), user)
    with open(os.path.join(top, "etc", "passwd"), "w", encoding="ascii") as file:
        file.write("root:x:0:0:root:/root:/bin/sh\n")
    with open(os.path.join(top, "etc", "release"), "w", encoding="ascii") as file:
        file.write("a small root\n")
    own(top, user)
    return top


def full(top, user):
    """What a program that writes to its root finds there to change and to remove."""
    for name in ("kept", "gone/file", "other/one", "other/two"):
        os.makedirs(os.path.join(top, "data", os.path.dirname(name)), exist_ok=True)
        with open(os.path.join(top, "data", name), "w", encoding="ascii") as file:
            file.write(name.split("/", maxsplit=1)[0] + "\n")
    os.symlink("kept", os.path.join(top, "data", "link"))
    os.mkdir(os.path.join(top, "root"), 0o700)
    own(top, user)


def add(top, program, user, missing=()):
    """A program of the machine's, with its libraries but for those that something else brings."""
    found = os.path.realpath(program)
    shutil.copy(found, os.path.join(top, "usr", "bin", os.path.basename(program)))
    add_libraries_of(found, top, missing)
    own(top, user)


def add_libraries_of(found, top, missing=()):
    for line in subprocess.run(["ldd", found], capture_output=True, text=True, check=True).stdout.splitlines():
        library = re.search(r"/\S+", line)
        if library:  # where the loader looks, which is itself named by its path in each program
            shutil.copy(library[0], os.path.join(top, "usr", "lib", os.path.basename(library[0])))
        else:
            assert "linux-vdso" in line or any(name in line for name in missing), line


def static(top, user):
    """Nothing but one program, which needs nothing."""
    os.makedirs(os.path.join(top, "opt"))
    source = top + ".c"
    with open(source, "w", encoding="ascii") as file:
        file.write(STATIC)
    subprocess.run(["gcc", "-static", "-o", os.path.join(top, "opt", "program"), source], check=True)
    own(top, user)
    return top


def own(top, user):
    for where, directories, files in os.walk(top):
        for name in [".", *directories, *files]:
            os.chown(os.path.join(where, name), user, user, follow_symlinks=False)


def debian12():
    """The root that ./dev has made for tests with Slurm 22.05, if it has; root's."""
    found = glob.glob("/var/cache/slurm-singularity/roots/bookworm-*/usr")
    return os.path.dirname(found[0]) if found else None


def squash(top, file, *options):
    """What enroot makes: a squashfs."""
    subprocess.run(["mksquashfs", top, file, "-quiet", "-no-progress", "-processors", "1", *options], check=True)
    return file


def sif(squashfs, file, kind=1, part=2, offset=32768, size=None, used=True, count=3):
    """An Apptainer image around a squashfs: a definition, the primary system partition, and a label."""
    with open(squashfs, "rb") as opened:
        content = opened.read()

    def descriptor(datatype, at, length, extra=b"", is_used=True):
        return struct.pack("<i?III", datatype, is_used, 1, 0xF0000001, 0) + struct.pack("<7q", at, length, length, 0, 0, 0, 0) + struct.pack("128s384s", b"name", extra)

    descriptors = [
        descriptor(0x4001, 30000, 16),
        descriptor(0x4004, offset, len(content) if size is None else size, struct.pack("<ii3s", kind, part, b"02"), used),
        descriptor(0x4003, 31000, 16),
    ]
    assert all(len(one) == 585 for one in descriptors)
    head = struct.pack("32s10s3s3s16s", b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC", b"01", b"02", b"id")
    head += struct.pack("<8q", 0, 0, 45, count, 4096, len(descriptors) * 585, 32768, len(content))
    with open(file, "wb") as out:
        out.write(head.ljust(4096, b"\0") + b"".join(descriptors))
        out.seek(32768)
        out.write(content)
    return file
