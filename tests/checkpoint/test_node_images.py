# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes whose root is a directory of the user's, saved and restored."""

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile

import pytest
import saved_nodes
from saved_nodes import USER, foreground, virtualnode

import images  # isort: skip: beside virtualnode

WORK = r"""
exec 5> /tmp/open 6< /etc/release
echo begun > /var/tmp/begun
while read -r line; do
    echo "$line" >&5
    echo "$line $(pwd) $(cat /tmp/open /var/tmp/begun /mnt/file | while read -r one; do printf '%s ' "$one"; done)"
done
read -r release <&6
echo "$release; $(cat /proc/self/mountinfo | grep -c ' /mnt ro,nosuid,nodev') $(cat /proc/self/mountinfo | grep -c ' / ro,nosuid,nodev')"
touch /etc/new 2> /dev/null || echo the image is read-only
"""


@pytest.fixture(name="place")
def directory_of_user():
    place = tempfile.mkdtemp(prefix="singularity-images-")
    os.chmod(place, 0o755)
    images.small(os.path.join(place, "image"), USER)
    os.mkdir(os.path.join(place, "data"))
    with open(os.path.join(place, "data", "file"), "w", encoding="ascii") as file:
        file.write("data\n")
    images.own(os.path.join(place, "data"), USER)
    yield place
    shutil.rmtree(place)


def begun(agent, place, command, *options):
    program = foreground(agent, "run", "--name", f"u{USER}-image", "--image", f"{place}/image", "--mount", f"{place}/data:/mnt:ro", "--workdir", "/usr",
                         *options, "--", *command)
    return program


def ask(program, line):
    program.stdin.write(line + "\n")
    program.stdin.flush()
    answer = program.stdout.readline()
    assert answer, program.stderr.read()
    return answer


def saved(agent, program):
    agent.ok("checkpoint", f"u{USER}-image")
    program.stdin.close()
    program.wait(saved_nodes.PATIENCE)


def test_saved_and_restored(agent, place):
    program = begun(agent, place, ["sh", "-c", WORK])
    assert ask(program, "one") == "one /usr one begun data \n"
    saved(agent, program)
    program = foreground(agent, "restore", f"u{USER}-image")
    assert ask(program, "two") == "two /usr one two begun data \n"
    # Once more: what was restored is saved as it was the first time.
    saved(agent, program)
    program = foreground(agent, "restore", f"u{USER}-image")
    assert ask(program, "three") == "three /usr one two three begun data \n"
    out, errors = program.communicate(timeout=saved_nodes.PATIENCE)
    assert (program.returncode, out) == (0, "a small root; 1 1\nthe image is read-only\n"), errors


def test_a_static_program(agent, place):
    shutil.rmtree(f"{place}/image")
    images.static(f"{place}/image", USER)
    program = begun(agent, place, ["/opt/program"])
    assert program.stdout.readline() == "static\n"
    first = ask(program, "one")
    assert first.startswith("line 1 of ")
    saved(agent, program)
    program = foreground(agent, "restore", f"u{USER}-image")
    assert ask(program, "two") == first.replace("line 1", "line 2").replace("one", "two")
    program.communicate(timeout=saved_nodes.PATIENCE)
    assert program.returncode == 7


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_mounted_source_that_is_replaced_meanwhile(agent, place, kind):
    """As editors and upgrades do it: the old one is mounted until the node is restored, and what has its name after that."""
    source = f"{place}/data/file" if kind == "file" else f"{place}/data"
    target = "/mnt/file" if kind == "file" else "/mnt"
    program = foreground(agent, "run", "--name", f"u{USER}-image", "--image", f"{place}/image", "--mount", f"{source}:{target}:ro", "--",
                         "sh", "-c", "while read -r line; do read -r one < /mnt/file; echo \"$one\"; done")
    assert ask(program, "one") == "data\n"
    shutil.move(source, f"{place}/old")
    if kind == "directory":
        os.mkdir(source)
    with open(f"{place}/data/file", "w", encoding="ascii") as file:
        file.write("new data\n")
    images.own(f"{place}/data", USER)
    shutil.rmtree(f"{place}/old") if kind == "directory" else os.unlink(f"{place}/old")
    saved(agent, program)
    program = foreground(agent, "restore", f"u{USER}-image")
    assert ask(program, "two") == "new data\n"
    program.communicate(timeout=saved_nodes.PATIENCE)


def restored(agent):
    return agent.ctl("restore", f"u{USER}-image", user=USER, stdin=subprocess.DEVNULL)


def change_a_file(place):
    with open(f"{place}/image/etc/release", "a", encoding="ascii") as file:
        file.write("more\n")


def remove_a_link(place):
    os.unlink(f"{place}/image/lib64")


def close_it(place):
    os.chmod(f"{place}/image", 0o700)
    os.chown(f"{place}/image", 0, 0)


SHOW_MOUNTS = r"""
while read -r line; do
    cat /proc/self/mountinfo | while read -r id parent device root point options rest; do echo "$point $options"; done
    echo end
done
"""


def mounts_of(program):
    program.stdin.write("\n")
    program.stdin.flush()
    return sorted(iter(program.stdout.readline, "end\n"))


def test_mounts_are_as_they_were(agent, place):
    """All of them, with their options; what is mounted in a mount of the user's is among them."""
    inner = f"{place}/data/inner"
    os.mkdir(inner)
    subprocess.run(["mount", "-t", "tmpfs", "test", inner], check=True)
    try:
        program = begun(agent, place, ["sh", "-c", SHOW_MOUNTS])
        before = mounts_of(program)
        assert any(line.startswith("/mnt/inner ro,nosuid,nodev") for line in before), before
        assert any(line.startswith("/home ") and "nosuid,nodev" in line for line in before), before
        saved(agent, program)
        program = foreground(agent, "restore", f"u{USER}-image")
        assert mounts_of(program) == before
        program.communicate(timeout=saved_nodes.PATIENCE)
    finally:
        subprocess.run(["umount", inner], check=True)


def test_the_mark_is_of_what_the_node_has(agent, place):
    """And not of what has its name when the node is saved."""
    program = begun(agent, place, ["sh", "-c", WORK])
    ask(program, "one")
    os.rename(f"{place}/image", f"{place}/begun")
    shutil.copytree(f"{place}/begun", f"{place}/image", symlinks=True)
    change_a_file(place)
    saved(agent, program)
    done = restored(agent)
    assert done.returncode == 1 and "it is not as it was when the job was saved" in done.stderr, done.stderr
    shutil.rmtree(f"{place}/image")
    os.rename(f"{place}/begun", f"{place}/image")
    program = foreground(agent, "restore", f"u{USER}-image")
    assert ask(program, "two") == "two /usr one two begun data \n"
    program.communicate(timeout=saved_nodes.PATIENCE)


def test_an_image_that_cannot_be_looked_at(agent, place):
    """It is saved, and restored; its user hears both times that nothing was compared."""
    for number in range(33000):
        os.symlink("nowhere", f"{place}/image/{number}")
    program = begun(agent, place, ["sh", "-c", WORK])
    ask(program, "one")
    told = agent.ctl("checkpoint", f"u{USER}-image", user=USER)
    assert told.returncode == 0, told.stderr
    assert f"the image '{place}/image' could not be looked at" in told.stdout + told.stderr, told
    program.stdin.close()
    program.wait(saved_nodes.PATIENCE)
    program = foreground(agent, "restore", f"u{USER}-image")
    assert ask(program, "two") == "two /usr one two begun data \n"
    _, errors = program.communicate(timeout=saved_nodes.PATIENCE)
    assert "nobody knows whether it is still the same" in errors, errors


def test_an_image_of_many_names(agent, place):
    """More than are compared: the whole levels above them are, in whatever order a directory has them."""
    many = f"{place}/image/usr/share/many"
    os.makedirs(many)
    for number in range(33000):
        os.symlink("nowhere", f"{many}/{number}")
    images.own(f"{place}/image", USER)
    program = begun(agent, place, ["sh", "-c", WORK])
    ask(program, "one")
    saved(agent, program)
    os.rename(f"{place}/image", f"{place}/before")
    subprocess.run(["cp", "-a", f"{place}/before", f"{place}/image"], check=True)
    change_a_file(place)
    done = restored(agent)
    assert done.returncode == 1 and "it is not as it was when the job was saved" in done.stderr, done.stderr
    subprocess.run(["cp", "-a", f"{place}/before/etc/release", f"{place}/image/etc/release"], check=True)
    program = foreground(agent, "restore", f"u{USER}-image")
    assert ask(program, "two") == "two /usr one two begun data \n"
    program.communicate(timeout=saved_nodes.PATIENCE)


@pytest.mark.parametrize("change, why", [
    (change_a_file, "it is not as it was when the job was saved"),
    (remove_a_link, "it is not as it was when the job was saved"),
    (close_it, f"uid {USER} may not read it"),
])
def test_another_image(agent, place, change, why):
    shutil.copytree(f"{place}/image", f"{place}/before", symlinks=True)
    images.own(f"{place}/before", USER)
    program = begun(agent, place, ["sh", "-c", WORK])
    ask(program, "one")
    saved(agent, program)
    change(place)
    done = restored(agent)
    assert done.returncode == 1 and f"{place}/image" in done.stderr and why in done.stderr, done.stderr
    # A copy that keeps times is as good as the one that was there; the checkpoint is as it was.
    shutil.rmtree(f"{place}/image")
    subprocess.run(["cp", "-a", f"{place}/before", f"{place}/image"], check=True)
    program = foreground(agent, "restore", f"u{USER}-image")
    assert ask(program, "two") == "two /usr one two begun data \n"
    program.communicate(timeout=saved_nodes.PATIENCE)


def test_a_mount_that_has_become_anothers(agent, place):
    """A restore reaches what its user reaches, and nothing else."""
    program = begun(agent, place, ["sh", "-c", WORK])
    ask(program, "one")
    saved(agent, program)
    shutil.move(f"{place}/data", f"{place}/away")
    os.makedirs(f"{place}/closed/data")
    os.chmod(f"{place}/closed", 0o700)
    os.symlink(f"{place}/closed/data", f"{place}/data")
    done = restored(agent)
    assert done.returncode == 1 and f"uid {USER} may not read it" in done.stderr, done.stderr
    os.unlink(f"{place}/data")
    shutil.move(f"{place}/away", f"{place}/data")
    program = foreground(agent, "restore", f"u{USER}-image")
    assert ask(program, "two") == "two /usr one two begun data \n"
    program.communicate(timeout=saved_nodes.PATIENCE)
    assert virtualnode.ALICE == USER


@contextlib.contextmanager
def hangs(where):
    """A file system of the user's over it, whose daemon never answers."""
    libc = ctypes.CDLL(None, use_errno=True)
    daemon = os.open("/dev/fuse", os.O_RDWR)
    try:
        options = f"fd={daemon},rootmode=40000,user_id={USER},group_id={USER},allow_other"
        assert libc.mount(b"hangs", where.encode(), b"fuse", ctypes.c_ulong(0), options.encode()) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            assert libc.umount2(where.encode(), 2) == 0  # MNT_DETACH
    finally:
        os.close(daemon)


@pytest.mark.parametrize("which", ["image", "data"])
def test_a_file_system_that_hangs(agent, place, which):
    """Nothing of root's hangs with it: the agent serves, and a restore can be ended."""
    program = begun(agent, place, ["sh", "-c", WORK])
    ask(program, "one")
    saved(agent, program)
    with hangs(f"{place}/{which}"):
        program = foreground(agent, "restore", f"u{USER}-image")
        while not (line := program.stderr.readline()).endswith("looking at the image\n"):
            assert line, "it waits for the file system"
        assert f"u{USER}-image" in agent.ok("ps")
        agent.ok("destroy", f"u{USER}-image")
        program.communicate(timeout=saved_nodes.PATIENCE)
        assert program.returncode == 1
    program = foreground(agent, "restore", f"u{USER}-image")
    assert ask(program, "two") == "two /usr one two begun data \n"
    program.communicate(timeout=saved_nodes.PATIENCE)


def test_devices(agent, place):
    """A program of the image's C library finds the device proxies' client, and goes on with its device's memory."""
    probe = saved_nodes.built("proxy", "singularity-probe")
    images.add(f"{place}/image", probe, USER, missing=("libcuda.so.1",))
    images.add_libraries_of(saved_nodes.built("client", "libcuda.so.1"), f"{place}/image")  # it needs what any distribution has
    program = begun(agent, place, [f"/usr/bin/{os.path.basename(probe)}", "steady"], "--devices", "1", "--backend", "software")
    assert program.stdout.readline() == "ready 1\n", program.stderr.read()
    saved_nodes.answers(program)
    saved(agent, program)
    program = foreground(agent, "restore", f"u{USER}-image")
    saved_nodes.answers(program)
    program.communicate(timeout=saved_nodes.PATIENCE)
