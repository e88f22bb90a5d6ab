# SPDX-License-Identifier: GPL-2.0-or-later
"""Unmodified programs that are saved at random moments, killed and restored, and notice nothing: their output is that of an
undisturbed run, to the bit."""

import os
import random
import shutil
import subprocess
import time

import nodes
import pytest

TIMES = 5  # each run is interrupted so often
PROGRAMS = os.path.join(nodes.HERE, "programs")

# name: command after the program directory, steps
WORKLOADS = {
    "threads": (["{threads}", "8", "{steps}", "progress"], 3000),
    "python_threads": (["python3", "programs/python_threads.py", "{steps}", "progress"], 1000),
    "pipeline": (["bash", "programs/pipeline.sh", "{steps}", "progress"], 800),
    "tree": (["python3", "programs/tree.py", "{steps}", "progress"], 800),
    "state": (["python3", "programs/state.py", "{steps}", "../../progress"], 600),
    "semaphores": (["python3", "programs/semaphores.py", "{steps}", "progress"], 600),
    "sockets": (["python3", "programs/sockets.py", "{steps}", "progress"], 600),
    "aio": (["python3", "programs/aio.py", "{steps}", "progress"], 600),
    "compiled": (["python3", "programs/compiled.py", "{steps}", "progress"], 600),
    "clocks": (["python3", "programs/clocks.py", "{steps}", "progress"], 600),
    "torch_2": (["python3", "programs/train.py", "2", "{steps}", "progress"], 200),
    "torch_4": (["python3", "programs/train.py", "4", "{steps}", "progress"], 120),
}


def start(place, name):
    command, steps = WORKLOADS[name]
    shutil.copytree(PROGRAMS, place.path("programs"))
    threads = shutil.copy(nodes.program("threads"), place.path("threads"))
    for directory in (place.shared, place.path("programs")):
        os.chown(directory, nodes.USER, nodes.USER)
    values = {"threads": threads, "steps": str(steps)}
    words = [word.format_map(values) for word in command]
    if words[-1].startswith("../"):  # the program changes its directory
        words[-1] = place.path("progress")
    return place.start(*words), steps


def progress(place):
    try:
        return os.path.getsize(place.path("progress"))
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("name", WORKLOADS)
def test_output_is_the_same(place, undisturbed, name):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    node, steps = start(place, name)
    saved = 0
    # Not near the end, which a program may reach before CRIU stops it, or, where others compute, before this test looks.
    for when in sorted(chance.sample(range(1, steps // 2), TIMES)):
        place.wait_for(lambda moment=when: progress(place) >= moment or node.ended(), f"step {when}")
        if node.ended() and saved:
            break
        assert not node.ended(), place.output()
        time.sleep(chance.uniform(0, 0.01))
        try:
            images, report = place.dump(node, after=chance.choice(["end", "stop"]))
        except nodes.Failed:
            # It has come to its end, of which a process has done a part: that is saved no more.
            if not saved or progress(place) < steps:
                raise
            break
        print(f"step {progress(place)}: {report}")
        node.kill()
        assert node.ended()
        began = time.monotonic()
        node = place.restore(images)
        print(f"restored in {time.monotonic() - began:.2f} s")
        shutil.rmtree(images)
        saved += 1
    assert node.wait() == 0, place.output()
    assert progress(place) == steps
    assert place.output() == undisturbed(name)


@pytest.mark.parametrize("after", ["run", "stop"])
def test_a_dump_leaves_nothing(place, undisturbed, after):
    """What CRIU makes for the time of a dump, the names of semaphores among it, is not there when the program runs on."""
    node, steps = start(place, "semaphores")
    for moment in (steps // 4, steps // 2):
        place.wait_for(lambda when=moment: progress(place) >= when, f"step {moment}")
        images, _ = place.dump(node, after=after)
        shutil.rmtree(images)
        if after == "stop":
            subprocess.run([nodes.DRIVER, "resume", str(node.init)], check=True, timeout=nodes.PATIENCE)
    assert node.wait() == 0, place.output()
    assert place.output() == undisturbed("semaphores")
