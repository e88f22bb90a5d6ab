# SPDX-License-Identifier: GPL-2.0-or-later
"""Which steps of a worker are alike: calls of one program, kind and name with the same paths but for numbers, between which there
is no call that comes only once; that is, repeats of one loop, whatever the order in which its threads come to them. What is
tried of such a class is its first step, its last one and one drawn by chance. A call that comes again in another phase, behind
one that comes only once, is of another class."""

import collections
import random
import re
import zlib

# What differs from run to run or from round to round: names that are drawn by chance, hashes and their first two digits, numbers.
CHANGING = re.compile(r"(?<=/singularity-test-)\w+|(?<=/singularity-links-)\w+|(?<=/cr-tmpfs\.)\w+|\b[0-9a-f]{16,}\b|(?<=blake3/)[0-9a-f]{2}\b|[0-9]+")
# Files of a host image: alike for the worker, which takes them as they come, and for criu where it removes those that are empty.
IMAGE = re.compile(r"(?<=/image-#/)(host/)?[^/]+")

# number: in the undisturbed run. mark: (what it is, the how manyth such call), by which any other run knows it.
Point = collections.namedtuple("Point", "number mark call")


def kind_of(call):
    """What alike calls have in common."""
    path, to = (CHANGING.sub("#", one) for one in (call.path, call.to))
    if call.program != "criu" or call.name == "unlinkat":
        path = IMAGE.sub("*", path)
    return (call.program, call.kind, call.name, path, to)


class Marks:
    """Gives each call of one run its mark."""

    def __init__(self):
        self.seen = collections.Counter()

    def of(self, call):
        kind = kind_of(call)
        self.seen[kind] += 1
        return kind, self.seen[kind]


def classes(points):
    """By names that are the same in every run: lists of points that are alike."""
    counts = collections.Counter(point.mark[0] for point in points)
    found = {}
    phase = 0
    for point in points:
        kind = point.mark[0]
        phase += counts[kind] == 1
        found.setdefault((phase, kind), []).append(point)
    times = collections.Counter()
    named = {}
    for (_, kind), members in found.items():
        times[kind] += 1
        named[kind, times[kind]] = members
    return named


def tried_of(points, chance):
    """Of one class."""
    inner = points[1:-1]
    return [*points[:1], *([chance.choice(inner)] if inner else []), *points[1:][-1:]]


def in_shard(name, shard, shards):
    """Whether a class belongs to that part, from 1, of a run in so many parts."""
    return zlib.crc32(repr(name).encode()) % shards == shard - 1


def chosen(points, seed, shard=1, shards=1):
    """Of a whole run's points those to try in one part of it, and how many classes that part has."""
    mine = {name: members for name, members in classes(points).items() if in_shard(name, shard, shards)}
    tried = [point for name, members in mine.items() for point in tried_of(members, random.Random(f"{seed} {name}"))]
    return sorted(tried, key=lambda point: point.number), len(mine)
