# SPDX-License-Identifier: GPL-2.0-or-later
"""What root's agent holds for users has a limit for each of them (per_user in singularity.yaml): it is said, counted, and others go on."""

import contextlib
import errno
import os
import re

import pytest
import virtualnode
from virtualnode import ALICE, BOB, KEPT, LOG, Refused, text

SETTINGS = """agents:
  run_without_slurm: true
  metrics: {metrics}
per_user: {{connections: 16, nodes: 2, program_mib: 8, output_mib: 8}}
"""


@pytest.fixture(name="limited")
def limited_agent(tmp_path):
    metrics = tmp_path / "agent.prom"
    agent = virtualnode.Agent(settings=SETTINGS.format(metrics=metrics))
    agent.metrics = metrics
    yield agent
    agent.close()


def refusals(agent, budget):
    found = re.search(rf'^singularity_requests_over_budget_total{{budget="{budget}"}} (\d+)$', agent.metrics.read_text(), re.MULTILINE)
    return int(found[1])


def create(connection, uid, **options):
    return connection.create(uid=uid, gid=uid, **options)[0]


def test_nodes(limited):
    with limited.connect(ALICE) as alice, limited.connect(BOB) as bob, limited.connect(0) as root:
        first = create(alice, ALICE)
        create(alice, ALICE)
        with pytest.raises(Refused, match=f"uid {ALICE} has 2 virtual nodes already, and per_user.nodes in singularity.yaml allows 2") as refused:
            create(alice, ALICE)
        assert refused.value.code == errno.EDQUOT
        create(bob, BOB)
        for _ in range(3):
            create(root, 0)
        alice.destroy(first)
        create(alice, ALICE)
    virtualnode.wait_for(lambda: refusals(limited, "nodes") == 1, "the metrics", 60)


def test_environments(limited):
    """3 MB each: of nodes as long as they are there, of programs until they have been started."""
    large = [f"LARGE{number}=" + "x" * 120_000 for number in range(25)]
    with limited.connect(ALICE) as alice, limited.connect(BOB) as bob:
        first = create(alice, ALICE, environment=large)
        second = create(alice, ALICE, environment=large)
        with pytest.raises(Refused, match="wants 2.9 MiB more, and per_user.program_mib in singularity.yaml allows 8.0 MiB") as refused:
            alice.run(first, ["/bin/true"], environment=large)
        assert refused.value.code == errno.EDQUOT
        other = create(bob, BOB)
        for _ in range(8):
            assert bob.run(other, ["/bin/true"], environment=large[:12])[0] == 0
        alice.destroy(second)
        create(alice, ALICE, environment=large)


def files_of(agent, node):
    """name -> size, of the output of its tasks."""
    directory = os.path.join(agent.state, node)
    sizes = {}
    for name in os.listdir(directory):
        if name.startswith("log."):
            with contextlib.suppress(FileNotFoundError):  # it is just being removed, or begun anew
                sizes[name] = os.stat(os.path.join(directory, name)).st_size
    return sizes


def write(connection, node, count):
    """A detached task with so much output, and then the word end."""
    number, _ = connection.start(node, ["/bin/sh", "-c", f"head -c {count} /dev/zero | tr '\\0' x; echo end"], stdio=KEPT)
    assert connection.wait(node, number) == (0, False)
    virtualnode.wait_for(lambda: connection.log(node, number).endswith(b"xend\n"), "its output")
    return number


def test_output(limited):
    """The end of each task's output is kept, and of all together no more than the share. Others have their own."""
    with limited.connect(ALICE) as alice, limited.connect(BOB) as bob:
        node, other = create(alice, ALICE), create(bob, BOB)
        tasks = [write(alice, node, 5 << 20) for _ in range(4)]
        sizes = files_of(limited, node)
        assert sum(sizes.values()) <= (8 << 20) + 4 * (128 << 10), sizes
        kept = [alice.log(node, task) for task in tasks]
        assert all(len(log) >= 64 << 10 and log.endswith(b"xend\n") for log in kept), sizes
        assert any(b"only the end of this output is kept: per_user.output_mib in singularity.yaml" in log for log in kept), sizes
        assert len(bob.log(other, write(bob, other, 5 << 20))) == (5 << 20) + len("end\n")
        assert f"uid {ALICE} has" in limited.log() and "per_user.output_mib in singularity.yaml allows 8.0 MiB" in limited.log()
        alice.destroy(node)
        node = create(alice, ALICE)
        assert len(alice.log(node, write(alice, node, 5 << 20))) == (5 << 20) + len("end\n")
    virtualnode.wait_for(lambda: refusals(limited, "output_mib") >= 1, "the metrics", 60)


def test_output_that_nobody_asks_for(limited):
    """No file is left of it, and no memory, whoever has it open: it was lent."""
    with limited.connect(ALICE) as alice:
        node = create(alice, ALICE)
        tasks = [write(alice, node, 100 << 10) for _ in range(3)]
        lent = [alice.ask(LOG, text(node) + task.to_bytes(4, "little"))[2][-1] for task in tasks]
        assert all(os.fstat(log).st_blocks for log in lent)
        alice.wait(node, tasks[0], forget=True)
        virtualnode.wait_for(lambda: f"log.{tasks[0]}" not in files_of(limited, node), "its file to be removed")
        assert not os.fstat(lent[0]).st_blocks
        alice.destroy(node)
        for log in lent:
            assert not os.fstat(log).st_blocks
            os.close(log)


def test_connections(limited):
    """Whoever has too many is hung up on; others are served."""
    held = [limited.connect(ALICE) for _ in range(16)]
    try:
        for connection in held:
            assert connection.nodes() == {}
        with limited.connect(ALICE) as one_more, pytest.raises((EOFError, OSError)):
            one_more.nodes()
        with limited.connect(BOB) as bob:
            assert bob.nodes() == {}
        assert f"uid {ALICE} has 16 connections to the agent already, and per_user.connections" in limited.log()
        held.pop().socket.close()

        def serves():
            with limited.connect(ALICE) as connection:
                try:
                    return connection.nodes() == {}
                except (EOFError, OSError):
                    return False
        virtualnode.wait_for(serves, "a connection more")
    finally:
        for connection in held:
            connection.socket.close()
