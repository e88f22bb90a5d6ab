# SPDX-License-Identifier: GPL-2.0-or-later
"""At each numbered step of a checkpoint or a restore somebody is killed, or from there on the disk is full or cannot be
read. Afterwards the program runs on, or the newest checkpoint restores, without a bit of difference; the store is whole and
nothing is left behind. Steps are what the worker and its criu do to files, processes and sockets (steps.py).

Of each operation and disturbance two steps are tried, drawn by chance; SINGULARITY_TEST_POINTS=N: as many of them; =classes: up to
three of each class of steps that are alike (alike.py), which is a complete run; =all: each step, which takes many hours.
SINGULARITY_TEST_SHARD=I/N: of a complete run the part I of N, from 1; SINGULARITY_TEST_OPERATIONS=restore,...: only these;
SINGULARITY_TEST_SEED: the same sample again."""

import collections
import contextlib
import errno
import functools
import os
import random
import subprocess
import time

import alike
import pytest
import steps
from saved_nodes import SEED
from scenes import OPERATIONS, PROGRAMS, Scene

POINTS = os.environ.get("SINGULARITY_TEST_POINTS") or "2"
SHARD, SHARDS = map(int, (os.environ.get("SINGULARITY_TEST_SHARD") or "1/1").split("/"))
ONLY = (os.environ.get("SINGULARITY_TEST_OPERATIONS") or ",".join(OPERATIONS)).split(",")

VICTIMS = ["client", "proxy", "agent", "worker", "criu"]
FAULTS = {"full": (errno.ENOSPC, "change"), "unreadable": (errno.EIO, "read")}
NEEDS_NO_SPACE = {"unlink", "unlinkat", "rmdir", "chmod"}


def counts_for(what):
    """Which calls are steps at which it can happen."""
    if what in VICTIMS:
        return lambda call: call.kind != "read"
    kind = FAULTS[what][1]
    return lambda call: call.kind == kind and call.name not in NEEDS_NO_SPACE


@functools.lru_cache(None)
def all_steps(name):
    """Of each operation: the calls that are in both of two undisturbed runs, with their marks, and whether they are on files of
    the staging directory or the store."""
    scene = Scene(name, random.Random(SEED))
    try:
        found = {}
        for operation in OPERATIONS:
            runs = []
            for _ in range(2):
                scene.prepare(operation)
                runs.append(steps.Plan(lambda call: True))
                status, errors = scene.attempt(operation, runs[-1])
                assert status == 0, errors
                scene.check(None)
            again = {mark for _, mark in runs[1].steps}
            found[operation] = [(call, mark, bool(scene.agent.steps.place(call))) for call, mark in runs[0].steps if mark in again]
        scene.finish()
        return found
    finally:
        scene.close()


def points_of(name, what, operation):
    """All steps at which it can happen."""
    counts = counts_for(what)
    found = [(mark, call) for call, mark, placed in all_steps(name)[operation] if counts(call) and (placed or what in VICTIMS)]
    criu = [number for number, (_, call) in enumerate(found) if call.program == "criu"]
    if what == "criu":
        found = found[criu[0]:criu[-1] + 1]
    if what == "client" and operation == "restore":
        found = found[criu[0]:]  # before, there is none
    return [alike.Point(number, mark, call) for number, (mark, call) in enumerate(found)]


def chosen(points, chance):
    """Those to try, and the number of the classes that they stand for."""
    if POINTS == "all":
        return points, len(points)
    tried, classes = alike.chosen(points, SEED, SHARD, SHARDS)
    if POINTS == "classes":
        return tried, classes
    return sorted(chance.sample(tried, min(int(POINTS), len(tried))), key=lambda point: point.number), classes


def plan_of(scene, what, point, killed):
    """That it happens at that point; killed: gets how many were."""
    counts, place = counts_for(what), scene.agent.steps.place
    if what in FAULTS:
        return steps.Plan(lambda call: counts(call) and place(call), lambda _, mark: mark == point.mark, code=FAULTS[what][0])
    return steps.Plan(counts, lambda _, mark: mark == point.mark, act=lambda _: killed.append(scene.kill(what)))


@pytest.mark.parametrize("what", [*VICTIMS, *FAULTS])
@pytest.mark.parametrize("name", PROGRAMS)
def test_steps(_mounts, name, what):
    if what == "proxy" and not PROGRAMS[name].devices:
        pytest.skip("it has no proxy")
    chance = random.Random(f"{SEED} {name} {what}")
    scene = Scene(name, chance)
    tally = collections.Counter()
    at = "the beginning"
    try:
        for operation in ONLY:
            points = points_of(name, what, operation)
            tried, classes = chosen(points, chance)
            print(f"{name}, {what}, {operation}: {len(points)} points, {classes} classes in part {SHARD} of {SHARDS}, {len(tried)} to try",
                  flush=True)
            tally.update(points=len(points), classes=classes)
            for point in tried:
                scene.prepare(operation)
                killed = []
                plan = plan_of(scene, what, point, killed)
                at = f"{name}, {what}, {operation}: step {point.number} of {len(points)}"
                began = time.monotonic()
                status, errors = scene.attempt(operation, plan)
                at += f" ({steps.text_of(plan.reached) if plan.reached else 'not reached: ' + steps.text_of(point.call)})"
                tally["tried"] += 1
                tally["not reached" if not plan.reached else "nobody there" if killed == [0] else "hit"] += 1
                how = scene.check(what)
                tally["survived"] += 1
                tally[how] += 1
                print(f"{at}: {status} {errors.splitlines()[-1:]}: {how}; {time.monotonic() - began:.1f} s", flush=True)
        at = "the end"
        scene.finish()
    except BaseException as violation:
        print(f"seed {SEED}: violated at {at}: {violation}\n{scene.agent.log()}")
        raise
    finally:
        print(f"seed {SEED}: {name}, {what}: {tally['points']} points; of them in part {SHARD} of {SHARDS} {tally['classes']} classes, "
              f"{tally['tried']} tried, {tally['survived']} survived ({dict(tally)})")
        scene.close()


@contextlib.contextmanager
def small_disk(agent, directory):
    """Over a directory of the agent's; a file of any size on it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=700", "none", directory], check=True)
    before, agent.mounts = agent.mounts, agent.own_mounts()
    try:
        yield os.path.join(directory, "ballast")
    finally:
        subprocess.run(["umount", "-l", directory], check=True)
        agent.mounts = before


@pytest.mark.parametrize("place", ["staging", "store"])
def test_full_disk(_mounts, place):
    """A disk that is really full, of which ever more is free until it is enough; proxies write there as well."""
    scene = Scene("cuda", random.Random(SEED))
    refused = collections.Counter()
    try:
        directory = getattr(scene.agent, place)
        with small_disk(scene.agent, directory) as ballast:
            if place == "store":
                scene.agent.ok("checkpoint", "--continue", scene.node)
            # In a store a restore needs the room of one empty file.
            for operation in list(OPERATIONS)[:3 if place == "staging" else 2]:
                left, status = 1, None
                while status != 0:
                    scene.prepare(operation)
                    free = os.statvfs(directory).f_bavail * os.statvfs(directory).f_bsize
                    with open(ballast, "wb") as file:
                        os.posix_fallocate(file.fileno(), 0, max(free - left, 1))
                    status, errors = scene.attempt(operation, steps.Plan(lambda call: False))
                    os.unlink(ballast)
                    print(f"{place}, {operation}: {left} bytes: {status} {errors.splitlines()[-1:]}", flush=True)
                    refused[operation] += status != 0
                    scene.check(None)
                    assert left <= 64 << 20
                    left = max(16 << 10, 16 * left)
                assert refused[operation] > 0
            print(f"{place}: refused and survived: {dict(refused)}")
            scene.finish(store=place == "staging")
    except BaseException as violation:
        print(f"seed {SEED}: {violation}\n{scene.agent.log()}")
        raise
    finally:
        scene.close()
