# SPDX-License-Identifier: GPL-2.0-or-later
"""Which steps of a worker are alike: calls of one program, kind and name with the same paths but for numbers, that follow each
other or are the same place in the rounds of one loop. What is tried of such a class is its first step, its last one and one
drawn by chance. A call that comes again somewhere else is of another class."""

import collections
import random
import re
import zlib

# What differs from run to run or from round to round: hashes, what tempfile makes, numbers.
CHANGING = re.compile(r"(?<=singularity-test-)\w+|(?<=singularity-links-)\w+|\b[0-9a-f]{16,}\b|[0-9]+")

# number: in the undisturbed run. mark: (what it is, the how manyth such call), by which any other run knows it.
Point = collections.namedtuple("Point", "number mark call")


def kind_of(call):
    """What alike calls have in common. A ptrace call's path is its request."""
    paths = (call.path, "") if call.name == "ptrace" else (CHANGING.sub("#", call.path), CHANGING.sub("#", call.to))
    return (call.program, call.kind, call.name, *paths)


class Marks:
    """Gives each call of one run its mark."""

    def __init__(self):
        self.seen = collections.Counter()

    def of(self, call):
        kind = kind_of(call)
        self.seen[kind] += 1
        return kind, self.seen[kind]


def _folded(items, period):
    """Of (kind, members), with repeats of that many items next to each other as one."""
    out = []
    at = 0
    while at < len(items):
        before, after = out[-period:], items[at:at + period]
        if len(before) == len(after) == period and all(one[0] == other[0] for one, other in zip(before, after)):
            for one, other in zip(before, after):
                one[1].extend(other[1])
            at += period
        else:
            out.append(items[at])
            at += 1
    return out


def folded(kinds):
    """(kind, positions) of each class, in the order of their first positions."""
    items = [(kind, [position]) for position, kind in enumerate(kinds)]
    period = 1
    while 2 * period <= len(items):
        shorter = _folded(items, period)
        # What has become one may have become a repeat of its neighbours.
        period = 1 if len(shorter) < len(items) and period > 1 else period + 1
        items = shorter
    return items


def classes(points):
    """By names that are the same in every run: lists of points that are alike."""
    seen = collections.Counter()
    out = {}
    for kind, positions in folded([point.mark[0] for point in points]):
        seen[kind] += 1
        out[kind, seen[kind]] = [points[position] for position in sorted(positions)]
    return out


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
