# SPDX-License-Identifier: GPL-2.0-or-later
"""Trainings of several ranks with NCCL on one host and on two, on as many devices as ranks and on fewer: the same bits as in
one place. Data between hosts goes from device proxy to device proxy, over TCP."""

import collections
import os
import sys

import pytest
from rankhosts import TOP

COLLECTIVES = os.path.join(TOP, "tests", "ranks", "collectives")
sys.path.append(COLLECTIVES)
import ranked  # noqa: E402
import test_training  # noqa: E402

# Hosts of a job's nodes, and devices of each for one rank of 8.
PLACES = (("n1,n2", 4), ("n1,n2", 2), ("n2,n1", 1), ("n1", 8), ("n2,n2", 1), ("n1,n2,n1,n2", 1))


HOSTS = {"patience": 60}  # nobody dies here, and all processors are busy


def by_rank(lines, separator):
    """What each rank has said."""
    found = collections.defaultdict(list)
    for line in lines.splitlines():
        rank, _, text = line.partition(separator)
        found[int(rank.lstrip("["))].append(text)
    return dict(found)


@pytest.fixture(scope="module")
def wanted():
    outputs = {}

    def of(name, ranks):
        if name not in outputs:
            outputs[name] = by_rank(ranked.finished(ranked.command(ranks, 1, ranked.proxied.program("workloads", name))), "] ")
        return outputs[name]

    return of


@pytest.mark.parametrize("name, ranks", test_training.trainings())
def test_results_do_not_depend_on_hosts(hosts, wanted, name, ranks):
    program = ["env", f"WORKLOADS_DATA={os.path.join(TOP, 'tests', 'workloads', 'data')}", ranked.proxied.program("workloads", name)]
    for where, devices in PLACES:
        each = ranks // len(where.split(","))
        options = ["--ranks-per-node", str(each), "--devices", str(min(devices, each)), "--backend", "software", "--label"]
        done = hosts.run("n1", where, *program, options=options)
        assert done.returncode == 0, f"{where} {devices}: {done.stdout[-2000:]} {done.stderr[-2000:]}\n{hosts.log('n1')}"
        assert by_rank(done.stdout, ": ") == wanted(name, ranks), f"{where}, {devices} devices each"
    hosts.assert_clean()
