# SPDX-License-Identifier: GPL-2.0-or-later
"""Ranks that are stopped between two collectives at random moments, and moved to another proxy: the same results.

SINGULARITY_TEST_SEED: the same moments again."""

import contextlib
import os
import random
import re
import subprocess
import sys
import time

import pytest
import ranked

sys.path.insert(0, os.path.join(ranked.HERE, "..", "..", "proxy"))
import image_proxy  # noqa: E402
import proxied  # noqa: E402
import test_training  # noqa: E402

SEED = int(os.environ.get("SINGULARITY_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
CUTS = 10


QUIET = 60000  # milliseconds: eight ranks on a machine that is busy with other tests
ATTEMPTS = 3  # as many as a checkpoint makes: a process that ends just then has to be gone first


@contextlib.contextmanager
def barrier(place, *options, attempts=ATTEMPTS):
    """All ranks of a place's proxy stand between two collectives; the numbers that are told of it."""
    process, line = coordinator(place, options, attempts)
    try:
        yield image_proxy.numbers(line)
    finally:
        process.stdin.close()
        process.wait(image_proxy.PATIENCE)
        for stream in (process.stdout, process.stderr):
            stream.close()


def coordinator(place, options, attempts):
    words = [proxied.program("proxy", "singularity-barrier"), *options, *(place.control(device) for device in range(place.devices))]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    if line:
        return process, line
    _, errors = process.communicate(timeout=image_proxy.PATIENCE)
    assert attempts > 1, f"no cut: {errors}"
    return coordinator(place, options, attempts - 1)


@contextlib.contextmanager
def barrier_of_all(place, program, ranks):
    """As soon as all ranks have begun with the device."""
    until = time.monotonic() + image_proxy.PATIENCE
    while True:
        assert program.poll() is None, "the program has ended before all of its ranks stood still"
        assert time.monotonic() < until, f"not all of {ranks} ranks have begun"
        with barrier(place) as cut:
            if cut["processes"] == ranks:
                yield cut
                return


def launched(place, name, ranks):
    launch = [sys.executable, os.path.join(ranked.HERE, "launch.py"), str(ranks), proxied.program("workloads", name)]
    # Programs name the toolkit's libnccl.so.2, wherever that is.
    redirected = {"LD_AUDIT": proxied.program("libsingularity-redirect.so"), "SINGULARITY_REDIRECT_TO": proxied.program("client")}
    return image_proxy.running(launch, place.environment(**redirected))


def undisturbed(name, ranks):
    """What it prints, and how long it takes."""
    with image_proxy.Place() as place:
        place.start_all()
        began = time.monotonic()
        with launched(place, name, ranks) as program:
            status, output, errors = program.result()
        assert status == 0, errors
        return output, time.monotonic() - began


@pytest.mark.parametrize("name, ranks", test_training.trainings())
def test_ranks_are_stopped_and_go_on(name, ranks):
    wanted, span = undisturbed(name, ranks)
    chance = random.Random(f"{SEED} {name}")
    cuts = []
    with image_proxy.Place() as place, place.start_all(), launched(place, name, ranks) as program:
        with barrier_of_all(place, program, ranks) as cut:
            cuts.append(cut)
        while program.poll() is None and len(cuts) < CUTS:
            time.sleep(chance.uniform(0, span / CUTS))
            with barrier(place) as cut:
                cuts.append(cut)
        status, output, errors = program.result()
    assert status == 0, errors
    assert output == wanted
    held = [cut for cut in cuts if cut["processes"] == ranks]
    print(f"seed {SEED}: {name}: {len(held)} cuts through all ranks, rounds {[cut['rounds'] for cut in held]}, "
          f"microseconds {[cut['microseconds'] for cut in held]}")


@pytest.mark.parametrize("name, ranks", test_training.trainings())
def test_ranks_are_moved(name, ranks):
    move(name, ranks)


def test_ranks_are_moved_that_reduce_on_the_device():
    """What they stage in is in no image, and is made anew with each proxy."""
    moves, images, log = move("train_data", 8, "--reductions=device")
    staged = re.findall(r"communicator of 8 ranks: collectives on the device, through (\d+) KiB of its memory", log)
    assert len(staged) > moves, log[-3000:]
    assert "through memory of the host" not in log, log[-3000:]
    assert len(images) == moves and max(images) < int(staged[0]) << 10, (images, staged)


def move(name, ranks, *options):
    """How often, the sizes of the images, and what the proxies have said."""
    wanted, span = undisturbed(name, ranks)
    chance = random.Random(f"{SEED} {name} moved")
    moves = 0
    images = []
    with image_proxy.Place(options=options) as place, place.start_all(), launched(place, name, ranks) as program:
        while program.poll() is None and moves < 5:
            time.sleep(chance.uniform(0, span / 5))
            # One that begins would be a new client of the new proxy, which agents do not let it be.
            with barrier(place) if moves else barrier_of_all(place, program, ranks) as cut:
                if cut["processes"] < ranks:
                    continue
                place.save(f"image.{moves}", "--detach", "--quiesce", str(QUIET))
            place.kill()
            place.start()
            place.restore(f"image.{moves}")
            place.awaited()
            images.append(os.path.getsize(place.path(f"image.{moves}")))
            moves += 1
        status, output, errors = program.result()
        log = place.log()
    print(f"seed {SEED}: {name}: {moves} moves")
    assert status == 0, errors
    assert output == wanted
    assert moves
    return moves, images, log


def test_a_dead_coordinator_holds_nobody():
    name, ranks = "train_data", 8
    wanted, _ = undisturbed(name, ranks)
    with image_proxy.Place() as place, place.start_all(), launched(place, name, ranks) as program:
        words = [proxied.program("proxy", "singularity-barrier"), place.control(0)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline()
            process.kill()
        status, output, errors = program.result()
    assert status == 0, errors
    assert output == wanted


def test_a_second_coordinator_is_refused():
    with image_proxy.Place() as place, place.start_all(), barrier(place):
        with pytest.raises(AssertionError, match="another one is under way"):
            with barrier(place, attempts=1):
                pass
