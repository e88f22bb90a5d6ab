# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes whose root is in one file of the user's, squashfs or SIF: which are taken, what is said of others, and who serves them."""

import ctypes
import os
import shutil
import signal
import tempfile

import images
import pytest
from test_images import node_of, refused, said
from virtualnode import ALICE, BOB, START, Refused, task, text, wait_for

libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(scope="module", name="place")
def directory_with_files():
    place = tempfile.mkdtemp(prefix="singularity-images-")
    os.chmod(place, 0o755)
    images.small(os.path.join(place, "small"), ALICE)
    with open(os.path.join(place, "small", "secret"), "w", encoding="ascii") as file:
        file.write("secret\n")
    os.chmod(os.path.join(place, "small", "secret"), 0o600)
    images.squash(os.path.join(place, "small"), os.path.join(place, "small.sqsh"), "-all-root")
    yield place
    shutil.rmtree(place)


def servers():
    """The processes that serve images: pid -> (uid, whether it may get more rights)."""
    found = {}
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                status = dict(line.split(":", 1) for line in file.read().splitlines())
        except OSError:
            continue
        if words[0] == b"squashfuse_ll":
            found[int(pid)] = status
    return found


@pytest.mark.parametrize("compression", ["gzip", "zstd", "xz", "lz4"])
def test_squashfs(agent, place, compression):
    file = images.squash(f"{place}/small", f"{place}/{compression}.sqsh", "-comp", compression)
    with node_of(agent, file, account="alice:x:1001:1001:Alice:/home/alice:/bin/sh") as node:
        assert said(node, "cat /etc/release; id -un; cat /etc/passwd") == (
            "a small root\nalice\nroot:x:0:0:root:/root:/bin/sh\nalice:x:1001:1001:Alice:/home/alice:/bin/sh\n")
        assert said(node, "touch /etc/new 2>&1 || true").endswith("Read-only file system\n")
        said(node, "echo one > /tmp/one")
        options = next(line.split() for line in said(node, "cat /proc/self/mountinfo").splitlines() if line.split()[4] == "/")[5]
        assert {"ro", "nosuid", "nodev"} <= set(options.split(","))
    os.unlink(file)


def test_sif(agent, place):
    file = images.sif(f"{place}/small.sqsh", f"{place}/small.sif")
    with node_of(agent, file, mounts=[(f"{place}/small/etc", "/mnt", True)]) as node:
        assert said(node, "cat /etc/release /mnt/release") == "a small root\n" * 2


def test_modes_hold(agent, place):
    """Files of others in the image are as those of others in a directory."""
    with node_of(agent, f"{place}/small.sqsh") as node:
        assert "Permission denied" in said(node, "cat /secret 2>&1 || true")


def test_who_serves(agent, place):
    """A process of the user's, outside of the node, that can get no rights, and that ends with the node."""
    wait_for(lambda: not servers(), "the servers of earlier nodes to end")
    with node_of(agent, f"{place}/small.sqsh") as node:
        (pid, status), = servers().items()
        assert status["Uid"].split() == [str(ALICE)] * 4 and status["Gid"].split() == [str(ALICE)] * 4
        assert status["NoNewPrivs"].strip() == "1" and int(status["CapEff"], 16) == 0 and int(status["CapPrm"], 16) == 0
        assert os.readlink(f"/proc/{pid}/ns/mnt") != said(node, "readlink /proc/self/ns/mnt").strip()
        assert "squashfuse" not in said(node, "cat /proc/[0-9]*/comm")
        os.kill(pid, signal.SIGTERM)  # as Slurm, before it kills: tasks have use for their image until then
        assert said(node, "cat /etc/release") == "a small root\n"
    wait_for(lambda: not servers(), "the server to end with its node")


def test_a_server_that_is_killed(agent, place):
    """It is the user's own doing: programs get errors, and the node can be ended."""
    with node_of(agent, f"{place}/small.sqsh") as (connection, name):
        pid, = servers()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not servers(), "it to be gone")
        with pytest.raises(Refused, match="cannot run 'sh' in the image '.*small.sqsh': the process that serves it has ended .squashfuse_ll for a file"):
            connection.run(name, ["sh", "-c", "uname"])


@pytest.mark.parametrize(("make", "why"), [
    (lambda top, file: images.squash(top, file) and os.truncate(file, 1000), "its server says: "),
    (lambda top, file: write(file, b"\x1f\x8b" + bytes(100)), "compressed by gzip: unpack it"),
    (lambda top, file: write(file, bytes(257) + b"ustar" + bytes(1000)), "an archive of tar: unpack it"),
    (lambda top, file: write(file, bytes(1080) + b"\x53\xef" + bytes(1000)), "an ext file system"),
    (lambda top, file: write(file, b"hsqs"), "its server says: "),
    (lambda top, file: write(file, b"text\n"), "neither a squashfs"),
    (lambda top, file: write(file, b""), "neither a squashfs"),
    (lambda top, file: write(file, bytes(32) + b"SIF_MAGIC\0"), "ends in the middle of its header"),
    (lambda top, file: images.sif(f"{top}.sqsh", file, kind=5), "an encrypted Apptainer image"),
    (lambda top, file: images.sif(f"{top}.sqsh", file, kind=2), "another file system than squashfs"),
    (lambda top, file: images.sif(f"{top}.sqsh", file, part=3), "without a primary system partition"),
    (lambda top, file: images.sif(f"{top}.sqsh", file, used=False), "without a primary system partition"),
    (lambda top, file: images.sif(f"{top}.sqsh", file, offset=1 << 62), "it is damaged"),
    (lambda top, file: images.sif(f"{top}.sqsh", file, size=-1), "it is damaged"),
    (lambda top, file: images.sif(f"{top}.sqsh", file, offset=20000), "holds no squashfs"),
    (lambda top, file: images.sif(f"{top}.sqsh", file, count=1 << 60), "it is damaged"),
    (lambda top, file: os.mkfifo(file), "neither a directory nor a regular file"),
])
def test_what_is_no_image(agent, place, make, why):
    file = f"{place}/one"
    make(f"{place}/small", file)
    try:
        assert why in refused(agent, file)
        wait_for(lambda: not servers(), "no server to be left")
    finally:
        os.unlink(file)


def write(file, content):
    with open(file, "wb") as out:
        out.write(content)


def test_somebody_elses(agent, place):
    file = shutil.copy(f"{place}/small.sqsh", f"{place}/private.sqsh")
    os.chown(file, ALICE, ALICE)
    os.chmod(file, 0o600)
    assert f"uid {BOB} may not read it" in refused(agent, file, BOB)
    with node_of(agent, file) as node:
        assert said(node, "cat /etc/release") == "a small root\n"


ENVIRONMENT = b"""# what a container's image says
PATH=/opt/tool/bin:/usr/bin
export EXPORTED=yes
  QUOTED="one two"
SINGLE='three  four'
EMPTY=
URL=https://example.org/?a=b
HOME=/root
SLURM_JOB_ID=7
SINGULARITY_PROXY_SOCKETS=/nowhere
LD_AUDIT=/evil.so
2BAD=no
no assignment
BAD-NAME=no
ZERO=a\0b
LAST=without a newline"""


def test_environment(agent, place):
    """The image's, but for what tells of the job."""
    top = shutil.copytree(f"{place}/small", f"{place}/speaking", symlinks=True)
    write(f"{top}/etc/environment", ENVIRONMENT)
    os.makedirs(f"{top}/opt/tool/bin")
    shutil.copy(f"{top}/usr/bin/uname", f"{top}/opt/tool/bin/tool")
    images.own(top, ALICE)
    try:
        for image in (top, images.squash(top, f"{place}/speaking.sqsh")):
            with node_of(agent, image) as node:
                job = ["PATH=/usr/bin:/bin", "HOME=/home/alice", "SLURM_JOB_ID=1", "SINGLE=of the job", "OWN=own"]
                lines = said(node, "tool > /dev/null; env", environment=job).splitlines()
                assert {"PATH=/opt/tool/bin:/usr/bin", "EXPORTED=yes", "QUOTED=one two", "SINGLE=three  four", "EMPTY=", "URL=https://example.org/?a=b",
                        "LAST=without a newline", "HOME=/home/alice", "SLURM_JOB_ID=1", "OWN=own"} <= set(lines), lines
                assert not [line for line in lines if line.startswith(("SINGULARITY_", "LD_AUDIT", "2BAD", "BAD-NAME", "no", "ZERO"))], lines
                connection, name = node  # found by the image's PATH, without a shell
                assert connection.run(name, ["tool"], environment=job) == (0, "Linux\n")
    finally:
        shutil.rmtree(top)


def test_environment_of_apptainer(agent, place):
    top = shutil.copytree(f"{place}/small", f"{place}/scripted", symlinks=True)
    os.makedirs(f"{top}/.singularity.d/env")
    write(f"{top}/.singularity.d/env/10-docker2singularity.sh", b'#!/bin/sh\nexport PATH="/opt/bin:/usr/bin"\nexport VERSION="${VERSION:-"12.4"}"\n')
    write(f"{top}/.singularity.d/env/20-hostile.sh", b"set -- nothing\nexport SLURM_JOB_ID=666 HOME=/root SINGULARITY_NAME=x; unset LD_AUDIT GONE; echo noise\n")
    write(f"{top}/.singularity.d/env/90-environment.sh", b"exit 3\n")
    os.chmod(f"{top}/.singularity.d/env/90-environment.sh", 0)
    write(f"{top}/.singularity.d/env/notes.txt", b"exit 3\n")
    images.own(top, BOB)
    try:
        file = images.sif(images.squash(top, f"{place}/scripted.sqsh"), f"{place}/scripted.sif")
        with node_of(agent, file) as (connection, name):
            assert connection.run(name, ["sh", "-c", 'echo "$PATH $VERSION $1"', "sh", "two words"]) == (0, "/opt/bin:/usr/bin 12.4 two words\n")
            assert connection.run(name, ["env", "sh", "-c", "exit 5"], environment=["PATH=/bin"])[0] == 5 << 8
            job = ["PATH=/bin", "HOME=/home/alice", "SLURM_JOB_ID=1", "LD_AUDIT=", "file=of the job", "GONE=1", "BASH_FUNC_module%%=() { :; }"]
            lines = connection.run(name, ["env"], environment=job)[1].splitlines()
            assert sorted(lines) == sorted([*job[1:5], job[6], "PATH=/opt/bin:/usr/bin", "VERSION=12.4"]), lines
            with pytest.raises(Refused, match="cannot run 'none' in the image"):
                connection.run(name, ["none"])
    finally:
        shutil.rmtree(top)


@pytest.mark.parametrize("make", [lambda path: os.mkfifo(path), lambda path: os.symlink("environment", path), lambda path: write(path, b"A=" + b"x" * (1 << 20))])
def test_strange_environments(agent, place, make):
    top = shutil.copytree(f"{place}/small", f"{place}/strange", symlinks=True)
    make(f"{top}/etc/environment")
    images.own(top, ALICE)
    try:
        with node_of(agent, top) as node:
            assert said(node, "echo ran") == "ran\n"
    finally:
        shutil.rmtree(top)


def test_a_server_that_does_not_answer(agent, place):
    """Whoever waits for it cannot even be killed, until the node is ended: then nothing is left."""
    with agent.connect(ALICE, groups=[ALICE]) as connection:
        name, _ = connection.create(uid=ALICE, gid=ALICE, groups=[ALICE], hostname="rank0", image=f"{place}/small.sqsh")
        pid, = servers()
        os.kill(pid, signal.SIGSTOP)
        # Out of its hands: another process of the user's has the connection, and does not answer either.
        theft = os.pidfd_open(pid)
        stolen = libc.syscall(438, theft, 4, 0)  # pidfd_getfd
        assert stolen >= 0
        connection.send(START, text(name) + task(["sh", "-c", "true"]), [0, 1, 2])
        assert os.read(stolen, 1 << 21)  # what it asks, which nobody answers
        os.kill(pid, signal.SIGKILL)
        connection.destroy(name)
    wait_for(lambda: not agent.leftovers() and not servers(), "nothing to be left")
    os.close(stolen)
    os.close(theft)
