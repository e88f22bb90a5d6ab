# SPDX-License-Identifier: GPL-2.0-or-later
"""Ranks that share a device whose memory each of them could fill: the same bits as with a device for each."""

import contextlib
import os
import random
import re
import subprocess
import time

import pytest

import ranked
import test_barrier
from ranked import proxied
from test_barrier import image_proxy

import on_device  # noqa: E402  beside image_proxy

MEMORY = "64M"
SMALLEST = "16M"  # of the software GPU: eight ranks with two slabs of 2 MiB each do not fit
TURN = re.compile(r"a turn begins after \d+ ms; (\d+) MiB have been moved out so far")
COPIED = re.compile(r"of what has moved so far (\d+) MiB were copied in \d+ ms and (\d+) MiB were there already; the content of (\d+) MiB was found out")
TRAININGS = ("train_data", "train_tensor", "train_combined", "train_overlapped", "train_tested", "captured_ring")


class Shared:
    """Runs on few devices, and what the proxies' log says of turns."""

    def __init__(self, directory):
        self.log = os.path.join(directory, "proxy.log")

    def run(self, ranks, devices, program, *arguments, memory=MEMORY, options=()):
        options = (f"--log-file={self.log}", "--log-level=debug", *options)
        return ranked.finished(ranked.command(ranks, devices, program, *arguments, options=options, SINGULARITY_SOFTGPU_MEMORY=memory))

    def turns(self):
        """How many there were, and MiB that were moved."""
        with open(self.log, encoding="utf-8") as file:
            found = TURN.findall(file.read())
        return len(found), int(found[-1]) if found else 0

    def copied(self):
        """MiB that were copied, that were there already, and whose content was found out."""
        with open(self.log, encoding="utf-8") as file:
            return [int(number) for number in COPIED.findall(file.read())[-1]]


def lines(output):
    return sorted(output.splitlines())


@pytest.mark.parametrize("mode, percent, ranks, devices, steps",
                         [("reduce", 60, 4, 1, 3), ("reduce", 80, 8, 3, 2), ("reduce", 80, 4, 2, 3), ("differ", 80, 4, 1, 3), ("graph", 80, 4, 1, 3),
                          ("captured", 80, 4, 1, 3), ("captured", 80, 4, 2, 3),
                          ("pool", 80, 4, 1, 3), ("alone", 80, 4, 1, 6), ("greedy", 90, 4, 1, 1)])
def test_every_rank_has_the_memory_of_a_device(mode, percent, ranks, devices, steps, tmp_path):
    shared = Shared(tmp_path)
    program = ranked.built("filling_ranks")
    arguments = (mode, str(percent), str(steps))
    alone = ranked.finished(ranked.command(ranks, ranks, program, *arguments, SINGULARITY_SOFTGPU_MEMORY=MEMORY))
    # One that never waits leaves when its turn is over.
    options = ("--turn=50",) if mode == "alone" else ()
    assert lines(shared.run(ranks, devices, program, *arguments, options=options)) == lines(alone)
    turns, moved = shared.turns()
    assert turns and moved


def test_a_rank_leaves_once_in_a_step(tmp_path):
    """Not at each of its collectives: it goes on until it needs what one of them gives."""
    shared = Shared(tmp_path)
    counted = {}
    for steps in (2, 10):
        if os.path.exists(shared.log):
            os.unlink(shared.log)
        shared.run(4, 1, ranked.built("filling_ranks"), "reduce", "80", str(steps))
        counted[steps] = shared.turns()[0]
    # Four collectives in each step; on a slow machine a turn is now and then shorter than a step.
    assert counted[10] - counted[2] <= 2 * 4 * 8, counted


def test_what_replicas_have_in_common_is_copied_once(tmp_path):
    """Half of what leaves the device has been copied by others, and half of what comes is still there."""
    program = ranked.built("filling_ranks")
    arguments = (4, 1, program, "alike", "60", "6")
    alone = ranked.finished(ranked.command(4, 4, program, *arguments[3:], SINGULARITY_SOFTGPU_MEMORY=MEMORY))
    shares = {}
    for how in ("always", "never"):
        shared = Shared(tmp_path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(shared.log)
        assert lines(shared.run(*arguments, options=(f"--share-content={how}",))) == lines(alone)
        copied, there, found = shared.copied()
        assert bool(there) == bool(found) == (how == "always")
        shares[how] = copied / (copied + there)
    assert shares["never"] == 1 and shares["always"] < 0.8, shares


@pytest.mark.parametrize("name", TRAININGS)
def test_trainings_on_a_device_that_is_too_small(name, tmp_path):
    shared = Shared(tmp_path)
    program = proxied.program("workloads", name)
    wide = ranked.finished(ranked.command(8, 8, program))
    assert shared.run(8, 1, program, memory=SMALLEST) == wide
    assert shared.turns()[0]


@pytest.mark.parametrize("name", ["groups_and_splits", "later_functions"])
def test_collectives_of_ranks_that_take_turns(name, tmp_path):
    shared = Shared(tmp_path)
    output = shared.run(8, 1, ranked.built(name), memory=SMALLEST)
    assert output.count("PASSED") == 8


def test_reductions_on_a_device_that_is_shared_by_turns(tmp_path):
    """What is staged there comes from memory of the host, and from the device, and goes back to either."""
    shared = Shared(tmp_path)
    program = ranked.built("filling_ranks")
    alone = ranked.finished(ranked.command(4, 4, program, "reduce", "30", "3", SINGULARITY_SOFTGPU_MEMORY="512M"))
    assert lines(shared.run(4, 1, program, "reduce", "30", "3", memory="512M", options=("--reductions=device",))) == lines(alone)
    assert shared.turns()[0]
    with open(shared.log, encoding="utf-8") as file:
        assert "through memory of the host" not in file.read()


@pytest.mark.parametrize("name", ["train_data", "train_combined", "captured_ring"])
def test_ranks_that_take_turns_are_moved(name, monkeypatch):
    """Their images are made of what is on the device and of what is not, and restored on one that is as small."""
    monkeypatch.setenv("SINGULARITY_SOFTGPU_MEMORY", SMALLEST)
    _, _, log = test_barrier.move(name, 8, "--log-level=debug")
    assert TURN.search(log), log[-3000:]


def test_memory_is_that_of_a_device_of_ones_own(tmp_path):
    """Even one byte more than the device has is refused, and nobody else is disturbed."""
    shared = Shared(tmp_path)
    line, environment = ranked.command(2, 1, ranked.built("filling_ranks"), "reduce", "110", "1", options=(f"--log-file={shared.log}",),
                                       SINGULARITY_SOFTGPU_MEMORY=MEMORY)
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=ranked.DEADLINE)
    assert done.returncode != 0 and "cudaErrorMemoryAllocation" in done.stderr, done.stderr


def test_a_killed_rank_leaves_its_room_to_the_others(tmp_path):
    """At any moment of its turn; the others' bits are as ever, and the device is empty in the end."""
    program = ranked.built("filling_ranks")
    wanted = [line.split(" ", 1)[1] for line in
              ranked.finished(ranked.command(1, 1, program, "alone", "80", "12", SINGULARITY_SOFTGPU_MEMORY=MEMORY)).splitlines()]
    chance = random.Random(test_barrier.SEED)
    with image_proxy.Place(options=("--turn=20", "--log-level=debug"), variables={"SINGULARITY_SOFTGPU_MEMORY": MEMORY}) as place:
        place.start_all()
        empty = on_device.free(place.environment())
        for _ in range(3):
            with contextlib.ExitStack() as stack:
                ranks = [stack.enter_context(image_proxy.running([program, "alone", "80", "12"], place.environment())) for _ in range(3)]
                time.sleep(chance.uniform(0, 0.5))
                ranks[0].kill()
                for rank in ranks[1:]:
                    status, output, errors = rank.result()
                    assert status == 0, errors
                    assert output.decode().splitlines() == wanted
        deadline = time.monotonic() + image_proxy.PATIENCE
        while on_device.free(place.environment()) != empty and time.monotonic() < deadline:
            time.sleep(0.01)
        assert on_device.free(place.environment()) == empty
        assert TURN.search(place.log())
    print(f"seed {test_barrier.SEED}")
