# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes whose root is a directory of the user's: what is in them, what they are refused, and what a hostile image does not get."""

import contextlib
import glob
import os
import pwd
import shutil
import stat
import subprocess
import tempfile

import images
import pytest
from virtualnode import ALICE, BOB, Agent, Refused, wait_for

SECRET = "root's own\n"


@pytest.fixture(scope="module", name="place")
def directory_of_alice():
    place = tempfile.mkdtemp(prefix="singularity-images-")
    os.chmod(place, 0o755)
    images.small(os.path.join(place, "small"), ALICE)
    images.static(os.path.join(place, "static"), ALICE)
    os.mkdir(os.path.join(place, "data"))
    with open(os.path.join(place, "data", "file"), "w", encoding="ascii") as file:
        file.write("data\n")
    images.own(os.path.join(place, "data"), ALICE)
    yield place
    shutil.rmtree(place)


@contextlib.contextmanager
def node_of(agent, image, uid=ALICE, **options):
    with agent.connect(uid, groups=[uid]) as connection:
        name, _ = connection.create(uid=uid, gid=uid, groups=[uid], hostname="rank0", image=image, **options)
        try:
            yield connection, name
        finally:
            connection.destroy(name)


def said(node, script, **options):
    connection, name = node
    status, output = connection.run(name, ["sh", "-c", script], **options)
    assert status == 0, output
    return output


def refused(agent, image, uid=ALICE, **options):
    with agent.connect(uid, groups=[uid]) as connection, pytest.raises(Refused) as why:
        connection.create(uid=uid, gid=uid, groups=[uid], image=image, **options)
    wait_for(lambda: not agent.leftovers(), "nothing to be left")  # the answer comes first
    return str(why.value)


def test_the_root_is_the_image(agent, place):
    with node_of(agent, f"{place}/small", account="alice:x:1001:1001:Alice:/home/alice:/bin/sh", account_groups=["alice:x:1001:"]) as node:
        assert said(node, "cat /etc/release; pwd; id -un; id -gn; uname -n") == "a small root\n/\nalice\nalice\nrank0\n"
        assert said(node, "cat /etc/passwd") == "root:x:0:0:root:/root:/bin/sh\nalice:x:1001:1001:Alice:/home/alice:/bin/sh\n"
        assert "rank0" in said(node, "cat /etc/hosts")
        with open("/etc/resolv.conf", encoding="utf-8") as file:
            assert said(node, "cat /etc/resolv.conf") == file.read()
        assert said(node, "ls /dev/null /dev/shm /dev/pts/ptmx /proc/self/status /sys/kernel /run/singularity/init.sock -d | cat")
        assert set(said(node, "ls /").split()) == {*os.listdir(f"{place}/small"), *os.path.dirname(__file__).split("/")[1:2], "home", "run", "usr"}


def test_what_can_be_written(agent, place):
    with node_of(agent, f"{place}/small") as node:
        said(node, "echo one > /tmp/one; echo two > /var/tmp/two; cat /tmp/one /var/tmp/two")
        for where in ("/", "/etc", "/usr/bin"):
            assert said(node, f"touch {where}/new 2>&1 || true").endswith("Read-only file system\n")
    assert not os.listdir(f"{place}/small/tmp")


def test_a_static_program_alone(agent, place):
    with node_of(agent, f"{place}/static") as (connection, name):
        assert connection.run(name, ["/opt/program"]) == (7 << 8, "static\n")
        with pytest.raises(Refused, match="cannot run 'sh' in the image .*static': it has no such program"):
            connection.run(name, ["sh", "-c", "true"])


def test_mounts(agent, place):
    mounts = [(f"{place}/data", "/mnt/data", True), (f"{place}/data", "/work", False), (f"{place}/data/file", "/etc/one.conf", True)]
    with node_of(agent, f"{place}/small", mounts=mounts) as node:
        assert said(node, "cat /mnt/data/file /work/file /etc/one.conf") == "data\n" * 3
        assert said(node, "touch /mnt/data/new 2>&1 || true").endswith("Read-only file system\n")
        said(node, "touch /work/new")
        lines = [line.split() for line in said(node, "cat /proc/self/mountinfo").splitlines()]
        options = {line[4]: set(line[5].split(",")) for line in lines}
        assert {"ro", "nosuid", "nodev"} <= options["/"]
        assert {"ro", "nosuid", "nodev"} <= options["/mnt/data"]
        assert {"rw", "nosuid", "nodev"} <= options["/work"]
    os.unlink(f"{place}/data/new")


@contextlib.contextmanager
def mounted(agent, where, kind="tmpfs", options="mode=755"):
    os.makedirs(where, exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, "test", where], check=True)
    before, agent.mounts = agent.mounts, agent.own_mounts()
    try:
        yield
    finally:
        subprocess.run(["umount", where], check=True)
        agent.mounts = before


def options_in(node):
    """mount point -> its options"""
    lines = [line.split() for line in said(node, "cat /proc/self/mountinfo").splitlines()]
    return {line[4]: set(line[5].split(",")) for line in lines}


def test_mounts_in_mounts(agent, place):
    """They come with it, as read-only and as bare as it is."""
    inner = f"{place}/data/inner"
    with mounted(agent, inner):
        with open(f"{inner}/file", "w", encoding="ascii") as file:
            file.write("inner\n")
        os.chmod(inner, 0o777)
        with node_of(agent, f"{place}/small", mounts=[(f"{place}/data", "/mnt/ro", True), (f"{place}/data", "/mnt/rw", False)]) as node:
            assert said(node, "cat /mnt/ro/inner/file /mnt/rw/inner/file") == "inner\n" * 2
            assert said(node, "touch /mnt/ro/inner/new 2>&1 || true").endswith("Read-only file system\n")
            said(node, "touch /mnt/rw/inner/new")
            options = options_in(node)
            assert {"ro", "nosuid", "nodev"} <= options["/mnt/ro/inner"] and {"rw", "nosuid", "nodev"} <= options["/mnt/rw/inner"]


def test_mounts_of_the_kernel_in_mounts(agent, place):
    with mounted(agent, f"{place}/data/inner", "proc", "defaults"):
        why = refused(agent, f"{place}/small", mounts=[(f"{place}/data", "/mnt", True)])
        assert "at '/inner' in it is one of the kernel's own file systems (proc)" in why, why


def test_mounts_in_an_image(agent, place):
    """What they hide is hidden in the node, too: none of it is there."""
    with mounted(agent, f"{place}/small/proc", "proc", "defaults"), node_of(agent, f"{place}/small") as node:
        assert said(node, "cat /etc/release") == "a small root\n"
    with mounted(agent, f"{place}/small/opt"):
        why = refused(agent, f"{place}/small")
        assert "on this host something is mounted in it, at '/opt'" in why, why
    os.rmdir(f"{place}/small/opt")


def test_an_image_on_an_overlay(agent, place):
    """What runs from there could not be saved."""
    os.mkdir(f"{place}/over")
    with mounted(agent, f"{place}/over", "overlay", f"lowerdir={place}/small:{place}/data"):
        why = refused(agent, f"{place}/over")
        assert "it lies on an overlay" in why, why
    os.rmdir(f"{place}/over")


def test_nothing_of_the_host_has_devices(agent, place):
    """Nor programs with more rights than their user, whatever the host's own mounts allow: what the site shows in an image is its own, too."""
    with mounted(agent, "/home/inner"), node_of(agent, f"{place}/small") as node:
        options = {point: found for point, found in options_in(node).items() if point not in ("/etc/hosts", "/run/singularity")}  # the agent's
        assert "/home/inner" in options and "/home" in options and "/sys" in options
        assert not {point: found for point, found in options.items()
                    if "nosuid" not in found or ("nodev" not in found and not point.startswith("/dev"))}
    os.rmdir("/home/inner")


def test_local_directories(place):
    """A name in one of them is of the job's, and not of the host's directory that it hides."""
    base, public = f"{place}/base", f"{place}/public"
    os.makedirs(base, 0o700)
    shutil.copytree(f"{place}/small", f"{public}/image", symlinks=True)
    own = Agent(settings=f"agents:\n  run_without_slurm: true\nlocal_directories:\n  base: {base}\n  paths: {public}\n")
    try:
        why = refused(own, f"{public}/image")
        assert f"{public} is the job's own on this host (local_directories in singularity.yaml), and has nothing of that name" in why, why
        with node_of(own, f"{place}/small") as node:
            said(node, f"touch {public}/one")
        assert os.listdir(public) == ["image"]
    finally:
        own.close()
        shutil.rmtree(public)


def test_what_is_above_an_image_is_not_on_the_host(agent, place):
    with node_of(agent, f"{place}/small") as node:
        assert said(node, "cat /etc/hosts")
        above = glob.glob(f"{agent.state}/*/image/skeleton")
        assert above and not any(os.listdir(one) for one in above)


def test_a_passwd_that_is_too_long(agent, place):
    image = f"{place}/long"
    shutil.copytree(f"{place}/small", image, symlinks=True)
    with open(f"{image}/etc/passwd", "a", encoding="ascii") as file:
        file.write("x" * (64 << 10))
    try:
        with node_of(agent, image, account="alice:x:1001:1001::/:/bin/sh") as node:
            assert said(node, "cat /etc/passwd") == "alice:x:1001:1001::/:/bin/sh\n"
    finally:
        shutil.rmtree(image)


def test_debian_12(agent):
    image = images.debian12()
    if image is None:
        pytest.skip("./dev has made no root of Debian 12 here")
    with node_of(agent, image) as node:
        assert 'VERSION_ID="12"' in said(node, "cat /etc/os-release")
        assert said(node, "python3 -c 'import ssl, sys; print(sys.version_info[:2])'") == "(3, 11)\n"


# -- what is refused, with words


def test_no_such_image(agent, place):
    assert f"'{place}/none': this host has nothing of that name: correct --singularity-image" in refused(agent, f"{place}/none")
    assert "it is a file, and neither a squashfs" in refused(agent, f"{place}/data/file")


@pytest.mark.parametrize("name", ["image", "/", "/a/../b", "/a/", "//a", "/a/./b", "/a\nb"])
def test_names_that_are_none(agent, name):
    assert "expected the absolute path of a directory" in refused(agent, name)


def test_an_image_that_its_user_may_not_read(agent, place):
    os.chmod(f"{place}/static", 0o700)
    try:
        why = refused(agent, f"{place}/static", BOB)
        assert f"'{place}/static': uid {BOB} may not read it" in why and "chmod" in why
        with node_of(agent, f"{place}/static"):
            pass
    finally:
        os.chmod(f"{place}/static", 0o755)


def test_what_is_in_an_image_has_its_own_rights(agent, place):
    """A mount point in a directory that its user may not enter would open it: it is root's in the node."""
    os.mkdir(f"{place}/small/closed")
    with open(f"{place}/small/closed/secret", "w", encoding="ascii") as file:
        file.write(SECRET)
    os.chmod(f"{place}/small/closed", 0o700)
    try:
        assert "may not enter" in refused(agent, f"{place}/small", mounts=[(f"{place}/data", "/closed/in/data", True)])
        assert "may not enter" in refused(agent, f"{place}/small", mounts=[(f"{place}/data", "/closed/data", True)])
        with node_of(agent, f"{place}/small") as node:
            assert "Permission denied" in said(node, "ls /closed /closed/secret 2>&1 || true")
    finally:
        shutil.rmtree(f"{place}/small/closed")


@pytest.mark.parametrize("mount, why", [
    (("/no/such", "/mnt"), "this host has nothing of that name: correct --singularity-mount"),
    (("/root", "/mnt"), None),
    (("relative", "/mnt"), "expected two absolute paths"),
    (("/usr", "/mnt/../etc"), "expected two absolute paths"),
    (("/usr", "/a" * 17), "more than 16 directories deep"),
    (("/usr", "/"), "expected two absolute paths"),
    (("/usr", "/proc/self"), "'/proc' mounted there already"),
    (("/usr", "/etc"), "'/etc/hosts' mounted there already"),
    (("/usr", "/run"), "'/run/singularity' mounted there already"),
    (("/usr", "/home/alice/x"), "'/home' mounted there already"),
    (("/usr", "/tmp/x"), "in or above /tmp"),
    (("/usr", "/var"), "in or above /var/tmp"),
    (("/proc", "/mnt"), "of the kernel's own file systems"),
    (("/proc/self/fd", "/mnt"), "of the kernel's own file systems"),
    (("/dev/null", "/mnt"), "only directories and regular files"),
    (("/usr", "/bin/x"), "'/bin' is a link in it"),
])
def test_mounts_that_cannot_be(agent, place, mount, why):
    if why is None:
        # A directory of root's can be named, and entered no more than outside.
        with node_of(agent, f"{place}/small", mounts=[(*mount, False)]) as node:
            assert "Permission denied" in said(node, "ls /mnt 2>&1 || true")
        return
    found = refused(agent, f"{place}/small", mounts=[(*mount, False)])
    assert why in found, found


def test_mounts_that_are_not_reached(agent, place):
    os.makedirs(f"{place}/closed/inner")
    os.chmod(f"{place}/closed", 0o700)
    try:
        assert f"uid {ALICE} may not read it" in refused(agent, f"{place}/small", mounts=[(f"{place}/closed/inner", "/mnt", False)])
        assert "'/a' mounted there already" in refused(agent, f"{place}/small", mounts=[("/usr", "/a", True), ("/usr", "/a/b", True)])
        assert "only an image has mounts" in refused(agent, "", mounts=[("/usr", "/a", True)])
    finally:
        shutil.rmtree(f"{place}/closed")


# -- hostile images


def test_links_lead_nowhere(agent, place):
    """An image in which every name that a node has is a link to somewhere else."""
    outside = f"{place}/outside"
    os.mkdir(outside)
    image = f"{place}/hostile"
    shutil.copytree(f"{place}/small", image, symlinks=True)
    for name in ("proc", "dev", "sys", "tmp", "home"):
        shutil.rmtree(f"{image}/{name}")
        os.symlink(outside, f"{image}/{name}")
    for name in ("hosts", "resolv.conf", "group"):
        os.symlink(f"{outside}/{name}", f"{image}/etc/{name}")
    os.unlink(f"{image}/etc/passwd")
    os.symlink("/etc/shadow", f"{image}/etc/passwd")  # the image's own, if it is anybody's
    images.own(image, ALICE)
    try:
        with node_of(agent, image, account="alice:x:1001:1001::/:/bin/sh") as node:
            assert said(node, "cat /etc/passwd") == "alice:x:1001:1001::/:/bin/sh\n"
            assert said(node, "readlink /proc /dev /sys /tmp /home /etc/hosts || echo no links") == "no links\n"
            said(node, "cat /proc/self/status /etc/hosts > /tmp/x; ls /dev/null")
        assert not os.listdir(outside)
    finally:
        shutil.rmtree(image)
        shutil.rmtree(outside)


@pytest.mark.parametrize("link", ["etc", "var", "run"])
def test_links_above_mount_points(agent, place, link):
    image = f"{place}/linked"
    shutil.copytree(f"{place}/small", image, symlinks=True)
    shutil.rmtree(f"{image}/{link}", ignore_errors=True)
    os.symlink("/root", f"{image}/{link}")
    try:
        assert f"'/{link}' is a link in it" in refused(agent, image)
    finally:
        shutil.rmtree(image)


def test_set_uid_programs_and_devices(agent, place):
    """Both are only files, as root makes them in an image of alice's."""
    program, device = f"{place}/small/usr/bin/setuid", f"{place}/small/usr/bin/disk"
    shutil.copy(f"{place}/small/usr/bin/id", program)
    os.chown(program, 0, 0)
    os.chmod(program, 0o6755)
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    os.chmod(device, 0o666)
    try:
        with node_of(agent, f"{place}/small") as node:
            assert said(node, "setuid -u; setuid -g") == f"{ALICE}\n{ALICE}\n"
            assert "Permission denied" in said(node, "cat < /usr/bin/disk 2>&1 || true")
    finally:
        os.unlink(program)
        os.unlink(device)


def test_an_image_that_changes_under_a_node(agent, place):
    """Its user exchanges a directory for a link while the node runs: the node sees the link, in its own root."""
    image = f"{place}/changing"
    shutil.copytree(f"{place}/small", image, symlinks=True)
    images.own(image, ALICE)
    try:
        with node_of(agent, image) as node:
            shutil.rmtree(f"{image}/var")
            os.symlink("/root", f"{image}/var")
            said(node, "touch /var/tmp/one; ls /var/tmp")
    finally:
        shutil.rmtree(image)


def test_command_line(agent, place):
    done = agent.ctl("run", "--image", f"{place}/small", "--mount", f"{place}/data:/mnt:ro", "--workdir", "/mnt", "--", "sh", "-c", "pwd; cat file", user=ALICE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "/mnt\ndata\n", "")
    daemon = pwd.getpwuid(1)
    done = agent.ctl("run", "--image", f"{place}/small", "--", "id", "-un", user=daemon.pw_uid)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{daemon.pw_name}\n", "")
    done = agent.ctl("run", "--image", f"{place}/small", "--mount", f"{place}/data", "--", "true", user=ALICE)
    assert done.returncode == 1 and "expected SRC:DST or SRC:DST:ro" in done.stderr
    done = agent.ctl("run", "--image", f"{place}/small", "--workdir", "/none", "--", "pwd", user=ALICE)
    assert done.returncode == 1 and "cannot work in the directory" in done.stderr and "/none" in done.stderr


def test_the_host_has_no_new_mounts(agent, place):
    before = subprocess.run(["cat", "/proc/self/mountinfo"], capture_output=True, text=True, check=True).stdout
    with node_of(agent, f"{place}/small", mounts=[(f"{place}/data", "/mnt", False)]):
        assert subprocess.run(["cat", "/proc/self/mountinfo"], capture_output=True, text=True, check=True).stdout == before
