# SPDX-License-Identifier: GPL-2.0-or-later
"""criu is killed, or takes too long: the program runs on, or nothing is left of it."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time

import nodes
import pytest
import test_programs

ROUNDS = 8


def criu_of(driver):
    """The criu that dumps or restores: those that only answer questions work for no user."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{driver.pid}/task"):
            with open(f"/proc/{driver.pid}/task/{thread}/children", encoding="ascii") as children:
                for pid in children.read().split():
                    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                        if "libsingularity_criu_user" in maps.read():
                            return int(pid)
    return None


def kill_criu(driver, after):
    end = time.monotonic() + nodes.PATIENCE
    while not (criu := criu_of(driver)):
        assert time.monotonic() < end, "criu was not started"
        if driver.poll() is not None:
            return
    time.sleep(after)
    with contextlib.suppress(ProcessLookupError):
        os.kill(criu, signal.SIGKILL)


def driver(*arguments):
    return subprocess.Popen([nodes.DRIVER, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def no_trace_of_criu(node):
    for pid in node.processes():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                assert "CRIUMFD" not in maps.read()
            with open(f"/proc/{pid}/status", encoding="utf-8") as status:
                assert "TracerPid:\t0" in status.read()


@pytest.mark.parametrize("name", ["threads", "tree"])
def test_killed_dump(place, undisturbed, name):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    node, steps = test_programs.start(place, name)
    place.wait_for(lambda: test_programs.progress(place) > 10, "the first steps")
    lost = False
    for _ in range(ROUNDS):
        images = place.images()
        dump = driver("dump", f"--log={place.log}", "--after=run", str(node.init), images)
        kill_criu(dump, chance.uniform(0, 0.25))
        _, errors = dump.communicate(timeout=nodes.PATIENCE)
        print(dump.returncode, errors.strip())
        shutil.rmtree(images)
        if "criu was killed while it was inside" in errors:
            lost = True
            break
        if not node.ended():
            no_trace_of_criu(node)
    if lost:
        node.kill()  # what the library says must be done
        return
    assert node.wait() == 0, place.output()
    assert test_programs.progress(place) == steps
    assert place.output() == undisturbed(name)


def test_dump_past_its_deadline(place, undisturbed):
    """Deadlines of all lengths: criu is stopped at a moment that the program survives, always."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    node, steps = test_programs.start(place, "tree")
    place.wait_for(lambda: test_programs.progress(place) > 10, "the first steps")
    passed = 0
    for _ in range(ROUNDS):
        try:
            place.dump(node, after="run", options=[f"--timeout-ms={chance.randrange(30, 350)}"])
        except nodes.Failed as failure:
            print(failure)
            passed += 1
            assert "criu was killed while" not in str(failure)
        no_trace_of_criu(node)
    assert passed > 0
    assert node.wait() == 0, place.output()
    assert test_programs.progress(place) == steps
    assert place.output() == undisturbed("tree")


def test_killed_restore(place, undisturbed):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    node, steps = test_programs.start(place, "tree")
    place.wait_for(lambda: test_programs.progress(place) > steps // 2, "half of the steps")
    images, _ = place.dump(node)
    node.kill()
    saved = place.path("progress"), os.path.getsize(place.path("progress"))
    for _ in range(ROUNDS):
        copy = place.images()
        shutil.copytree(images, copy, dirs_exist_ok=True)
        restore = driver("restore", f"--log={place.log}", copy, place.root)
        kill_criu(restore, chance.uniform(0, 0.3))
        line = restore.stdout.readline()
        if line:  # it was too late: the node runs
            os.kill(int(line), signal.SIGKILL)
        _, errors = restore.communicate(timeout=nodes.PATIENCE)
        print(restore.returncode, line, errors.strip())
        assert not nodes.processes_with_root(place.root), "something is left of the node"
        os.truncate(*saved)
    node = place.restore(images)
    assert node.wait() == 0, place.output()
    assert place.output() == undisturbed("tree")
