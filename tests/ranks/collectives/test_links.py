# SPDX-License-Identifier: GPL-2.0-or-later
"""Ranks that have a device each, and NCCL between those: what it would be on real ones is libnccl.so.2 of this project on the software
GPU, of whose proxies the proxies under test are clients (nested.py). Every collective, to the bit, and none through the host. Programs
have no pinned memory here: its addresses are in the window that the outer client keeps free."""

import os
import re
import sys

import pytest

import ranked
from ranked import proxied

OUTER = ("--window-size=57174604644352",)  # see nested.py
SENT = re.compile(r"communicator \d+: (\d+) bytes sent to other devices")


class Links:
    def __init__(self, directory):
        self.log = os.path.join(directory, "inner.log")

    def command(self, ranks, devices, program, *arguments, **variables):
        launch = [sys.executable, os.path.join(ranked.HERE, "launch.py"), str(ranks), program, *arguments]
        nested = [sys.executable, os.path.join(ranked.HERE, "nested.py"), str(devices), self.log, *launch]
        return proxied.proxied(nested, devices=devices, options=OUTER, **variables)

    def text(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read()

    def sent(self):
        """Bytes, by communicator and rank."""
        return [int(number) for number in SENT.findall(self.text())]

    def check(self):
        """Everything went from device to device that had others to go to; what is shared to meet does not."""
        text = self.text()
        assert "is linked to the others" in text and sum(self.sent()), text[-3000:]
        assert "through memory of the host" not in text, text[-3000:]
        within, through = (sum(column) for column in zip(*(map(int, found[1:]) for found in ranked.MOVED.findall(text))))
        assert through < within / 1000, (within, through)


@pytest.fixture(name="links")
def make_links(tmp_path):
    return Links(tmp_path)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_every_collective(links, ranks):
    output = ranked.finished(links.command(ranks, ranks, ranked.built("every_collective")))
    assert output.count("PASSED") == ranks
    links.check()


@pytest.mark.parametrize("ranks", [2, 4])
def test_captured_collectives(links, ranks):
    """Launches of graphs issue them, and NCCL moves their data."""
    output = ranked.finished(links.command(ranks, ranks, ranked.built("captured_rules"), "rules"))
    assert output.count("PASSED") == ranks
    links.check()


@pytest.mark.parametrize("what", ["aborted", "shrunk"])
def test_the_others_learn_of_an_abort(links, what):
    output = ranked.finished(links.command(4, 4, ranked.built("failing_rank"), what))
    assert output.count("PASSED") == 4
    links.check()


def test_ranks_that_share_a_device(links):
    """NCCL has no two ranks on one: all go through memory of the host."""
    output = ranked.finished(links.command(3, 2, ranked.built("every_collective")))
    assert output.count("PASSED") == 3
    assert not any(links.sent())


def test_training_is_the_same(links):
    """To the bit, as through memory of the host."""
    program = proxied.program("workloads", "train_tensor")
    output = ranked.finished(links.command(8, 8, program))
    assert output.endswith("[0] PASSED\n"), output
    assert output == ranked.finished(ranked.command(8, 8, program))
    links.check()
