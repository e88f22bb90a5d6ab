# SPDX-License-Identifier: GPL-2.0-or-later
import collections
import random

import alike
import pytest

Call = collections.namedtuple("Call", "pid program kind name path to")


def points(letters):
    """One point for each letter, in order."""
    marks = alike.Marks()
    calls = [Call(number, "criu", "change", "openat", f"/staging/{letter}", "") for number, letter in enumerate(letters)]
    return [alike.Point(number, marks.of(call), call) for number, call in enumerate(calls)]


def members(letters):
    return [[point.number for point in members] for members in alike.classes(points(letters)).values()]


@pytest.mark.parametrize("letters, wanted", [
    ("", []),
    ("a", [[0]]),
    ("aaaa", [[0, 1, 2, 3]]),
    ("abc", [[0], [1], [2]]),
    ("aaxaa", [[0, 1], [2], [3, 4]]),  # the same call in another phase
    ("ababab", [[0, 2, 4], [1, 3, 5]]),
    ("xabababy", [[0], [1, 3, 5], [2, 4, 6], [7]]),
    ("xabbaabyab", [[0], [1, 4, 5], [2, 3, 6], [7], [8], [9]]),  # two threads in one loop
])
def test_classes(letters, wanted):
    assert members(letters) == wanted


def test_every_point_is_in_one_class():
    chance = random.Random(1)
    for _ in range(200):
        letters = "".join(chance.choice("abc") for _ in range(chance.randrange(40)))
        found = members(letters)
        assert sorted(number for one in found for number in one) == list(range(len(letters)))
        assert all(len({letters[number] for number in one}) == 1 for one in found)


def test_what_is_tried():
    letters = "x" + "a" * 50 + "y" + "b" * 2
    tried, count = alike.chosen(points(letters), 1)
    numbers = [point.number for point in tried]
    assert count == 4 and numbers == sorted(set(numbers)) and len(numbers) == 1 + 3 + 1 + 2
    assert {0, 1, 50, 51, 52, 53} < set(numbers)
    assert tried == alike.chosen(points(letters), 1)[0]
    inner = {alike.chosen(points(letters), seed)[0][2].number for seed in range(50)}
    assert len(inner) > 10 and inner <= set(range(2, 50))


def test_shards():
    """Each class is in one part of a run, also where another run has a step more."""
    letters = "".join(chr(ord("a") + number) for number in range(26)) + "abcaab"
    parts = [alike.chosen(points(letters), 1, shard, 4)[0] for shard in range(1, 5)]
    whole, count = alike.chosen(points(letters), 1)
    assert sorted(point for part in parts for point in part) == sorted(whole) and all(parts)
    assert count == sum(alike.chosen(points(letters), 1, shard, 4)[1] for shard in range(1, 5))
    longer = [{point.mark for point in alike.chosen(points("x" + letters), 1, shard, 4)[0]} for shard in range(1, 5)]
    assert all({point.mark for point in part if "x" not in point.call.path} <= more for part, more in zip(parts, longer))


@pytest.mark.parametrize("one, other, alike_", [
    (("openat", "/staging/pages-1.img"), ("openat", "/staging/pages-22.img"), True),
    (("openat", "/tmp/singularity-test-ab_1x/store/9f86d081884c7d65"), ("openat", "/tmp/singularity-test-zzz/store/60303ae22b998861"), True),
    (("openat", "/staging/pages-1.img"), ("openat", "/staging/core-1.img"), False),
    (("openat", "/staging/pages-1.img"), ("write", "/staging/pages-1.img"), False),
    (("ptrace", "16"), ("ptrace", "17"), True),
    (("unlinkat", "/staging/u1001-1/image-0123456789abcdef/host/fs-1.img"), ("unlinkat", "/staging/u1001-1/image-0123456789abcde0/host/a.img"), True),
    (("mkdirat", "/store/chunks/blake3/5e"), ("mkdirat", "/store/chunks/blake3/aa"), True),
])
def test_kinds(one, other, alike_):
    first, second = (alike.kind_of(Call(1, "criu", "change", name, path, "")) for name, path in (one, other))
    assert (first == second) == alike_
