# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes whose programs write to the root of an image: where that goes, who sees it, and what an image cannot make of it."""

import os
import shutil
import tempfile

import images
import pytest
from test_images import node_of, refused, said
from virtualnode import ALICE, Agent, wait_for

WRITABLE, READ_ONLY = 1, 2  # RootIs of spank/node/record.hpp


@pytest.fixture(scope="module", name="place")
def directory_with_images():
    place = tempfile.mkdtemp(prefix="singularity-images-")
    os.chmod(place, 0o755)
    top = images.small(os.path.join(place, "small"), ALICE)
    images.full(top, ALICE)
    with open(os.path.join(top, "secret"), "w", encoding="ascii") as file:
        file.write("secret\n")
    os.chown(file.name, ALICE, ALICE)
    os.chmod(os.path.join(top, "secret"), 0o600)
    images.squash(top, f"{place}/small.sqsh", "-all-root")
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module", name="layered")
def agent_with_local_directories(place):
    """Its nodes have a layer."""
    base = f"{place}/base"
    os.makedirs(base, 0o700)
    own = Agent(settings=f"agents:\n  run_without_slurm: true\nlocal_directories:\n  base: {base}\n  paths: /var/tmp\n")
    yield own, base
    own.close()


@pytest.mark.parametrize("kind", ["small", "small.sqsh"])
def test_programs_write_to_the_root(layered, place, kind):
    agent, base = layered
    with node_of(agent, f"{place}/{kind}") as node, node_of(agent, f"{place}/{kind}") as other:
        said(node, "mkdir -p /opt/cache; echo one > /opt/cache/one; echo mine > /etc/release; echo mine >> /etc/passwd; rm -r /data/gone /root; echo one > /tmp/one")
        assert said(node, "cat /opt/cache/one /etc/release /secret; ls /data; stat -c '%u %a' / /etc /opt") == (
            f"one\nmine\nsecret\nkept\nlink\nother\n{ALICE} 755\n{ALICE} 755\n{ALICE} 755\n")
        assert said(other, "cat /etc/release; ls /data; [ -e /opt ] || echo none") == "a small root\ngone\nkept\nlink\nother\nnone\n"
        options = next(line.split() for line in said(node, "cat /proc/self/mountinfo").splitlines() if line.split()[4] == "/")
        assert {"rw", "nosuid", "nodev"} <= set(options[5].split(",")) and "userxattr" in options[-1], options
        for change in ("rm /etc/hosts", "rm -r /run/singularity", "touch /run/singularity/image/new", f"ls {base}"):
            assert "cannot" in said(node, f"{change} 2>&1 || true"), change
    with open(f"{place}/small/etc/release", encoding="ascii") as file:
        assert file.read() == "a small root\n"
    wait_for(lambda: not os.path.exists(base) or not [name for name in os.listdir(base) if name != ".lock"], "what was written to be gone")


@pytest.mark.parametrize("paths", ["", "  paths: /var/tmp\n"])
@pytest.mark.parametrize("writable, wanted, is_writable", [
    ("always", 0, True), ("always", READ_ONLY, False), ("always", WRITABLE, True),
    ("never", 0, False), ("never", READ_ONLY, False), ("never", WRITABLE, None),
    ("beside local_directories", 0, "paths"), ("beside local_directories", READ_ONLY, False), ("beside local_directories", WRITABLE, "paths or refused"),
])
def test_whether_the_root_is_writable(place, paths, writable, wanted, is_writable):
    """By what the site says, and what the user wants of it; with local directories and without."""
    if isinstance(is_writable, str):
        is_writable = True if paths else None if "refused" in is_writable else False
    base = f"{place}/other"
    os.makedirs(base, 0o700)
    own = Agent(settings=f'agents:\n  run_without_slurm: true\nlocal_directories:\n  base: {base}\n{paths}containers:\n  writable: {writable}\n')
    try:
        if is_writable is None:
            why = refused(own, f"{place}/small", root=wanted)
            assert "the roots of images are read-only on this host (containers.writable in singularity.yaml)" in why, why
        else:
            with node_of(own, f"{place}/small", root=wanted) as node:
                shown = said(node, "echo one > /etc/new 2>&1; cat /etc/new 2>&1 || true; echo two > /tmp/two; echo three > /var/tmp/three")
                assert shown.splitlines()[-1] == "one" if is_writable else "Read-only file system" in shown, shown
            wait_for(lambda: not [name for name in os.listdir(base) if name != ".lock"], "what was written to be gone")
        assert "3, and no such kind" in refused(own, f"{place}/small", root=3)
    finally:
        own.close()
        shutil.rmtree(base)


@pytest.mark.parametrize("kind", ["steered", "steered.sqsh"])
def test_an_image_does_not_steer_its_overlay(layered, place, kind):
    """By the attributes by which overlayfs notes things, in the names that root's overlays believe, and in those that a user's do."""
    agent, _ = layered
    top = f"{place}/steered"
    shutil.copytree(f"{place}/small", top, symlinks=True)
    for space in ("trusted", "user"):
        for path, name, value in (("data", "opaque", b"y"), ("data/other", "redirect", b"/data/gone"), ("data/gone", "opaque", b"x"),
                                  ("data/kept", "metacopy", b""), ("data/kept", "redirect", b"/secret"), ("usr", "origin", b"\0" * 21)):
            os.setxattr(f"{top}/{path}", f"{space}.overlay.{name}", value)
    images.own(top, ALICE)
    if kind.endswith(".sqsh"):
        images.squash(top, f"{place}/{kind}", "-all-root", "-xattrs")
    try:
        with node_of(agent, f"{place}/{kind}") as node:
            assert said(node, "ls /data/other /data/gone; cat /etc/release") == "/data/gone:\nfile\n\n/data/other:\none\ntwo\na small root\n"
            assert "secret" not in said(node, "cat /data/kept 2>&1 || true")
            said(node, "rm -r /data/other; mkdir /data/other; echo new > /data/other/new")
            assert said(node, "ls /data/other") == "new\n"
    finally:
        shutil.rmtree(top)
