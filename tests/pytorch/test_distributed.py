# SPDX-License-Identifier: GPL-2.0-or-later
"""Two ranks with this project's libnccl.so.2: the same losses on two devices and on one, to the bit; and device memory of two processes."""

import pytest

import installed

KINDS = ("ddp", "fsdp", "fsdp2", "zero", "ddp-graph", "all-reduce-graph")
ALIKE = ("fsdp", "fsdp2", "zero")  # other ways to the losses of DistributedDataParallel
STEPS = 4


def losses(kind, devices, scratch):
    """{(rank, step): value}, in hexadecimal."""
    found = {}
    for line in installed.lines("proxied", ["distributed.py", kind], scratch, devices):
        words = line.split()
        found[int(words[1]), int(words[3])] = words[-1]
    assert sorted(found) == [(rank, step) for rank in range(2) for step in range(STEPS)]
    return found


@pytest.fixture(name="wanted", scope="module")
def losses_of_ddp(tmp_path_factory):
    return losses("ddp", 2, tmp_path_factory.mktemp("ddp"))


@pytest.mark.parametrize("kind", KINDS)
def test_two_devices_and_one(kind, wanted, tmp_path):
    two = wanted if kind == "ddp" else losses(kind, 2, tmp_path)
    assert losses(kind, 1, tmp_path) == two, "two devices | one"
    if kind in ALIKE:
        for place, value in two.items():
            assert float.fromhex(value) == pytest.approx(float.fromhex(wanted[place]), rel=1e-4), place


def test_tensors_of_two_processes(tmp_path):
    assert len(installed.lines("proxied", ["shared.py"], tmp_path)) == 3
