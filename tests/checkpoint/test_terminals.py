# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs on a terminal of their node: saved, restored on another terminal of the user's."""

import os
import random
import signal
import subprocess
import time

import saved_nodes
import virtualnode
from saved_nodes import PATIENCE, SEED, USER

WHO = {"user": USER, "group": USER, "extra_groups": []}
SAVES = 5
LINES = 400


def on_terminal(agent, *words, **options):
    return virtualnode.Terminal(agent.command(*words), **options, **WHO)


def only_node(agent):
    (node,) = agent.nodes()
    return node


def save(agent, terminal):
    """Its node is in the store and gone, and whoever had started or restored it is told. What the terminal shows up to then."""
    agent.ok("checkpoint", only_node(agent))
    shown = terminal.rest()
    assert terminal.process.wait(PATIENCE) == 128 + signal.SIGKILL
    assert terminal.is_as_before(), "the user's terminal is left raw"
    assert not agent.leftovers()
    return shown


def runs(words):
    return subprocess.run(["pgrep", "-fx", words], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_a_shell(agent):
    """Its variables, modes, job and half a line go with it; the size is that of the terminal which it has now."""
    with on_terminal(agent, "run", "--", "bash", "--norc", "--noprofile") as first:
        first.send(b"value=$((40 + 2)); trap 'echo size-is $(stty size)' WINCH; stty size; sleep 4711 &\n")
        first.expect(b"30 100")
        first.send(b"jobs; echo ready-$((1 + 1))\n")
        first.expect(b"ready-2")
        first.send(b"echo half-")
        first.expect(b"echo half-")
        node = only_node(agent)
        assert b"was ended from outside" in save(agent, first)
    with on_terminal(agent, "restore", node, rows=40, columns=120) as second:
        second.wait_until_raw()
        second.send(b"$value; tty; stty size\n")
        second.expect(b"half-42")
        second.expect(b"/dev/pts/0")
        second.expect(b"40 120")
        second.send(b"jobs\n")
        second.expect(b"sleep 4711")
        second.send(b"kill %1; wait; sleep 4712\n")
        virtualnode.wait_for(lambda: runs("sleep 4712"), "sleep to run")
        second.send(b"\x03")
        second.expect(b"^C")
        second.send(b"echo status-$?; exit 5\n")
        second.expect(b"status-130")
        assert second.process.wait(PATIENCE) == 5
        assert second.is_as_before(), "the user's terminal is left raw"
    virtualnode.wait_for(lambda: not agent.leftovers(), "everything to be gone")


def test_input_that_nobody_has_read(agent):
    """Lines that were typed ahead are read after the restore."""
    go = os.path.join(agent.directory, "go")
    script = f"echo up; while [ ! -e {go} ]; do sleep 0.01; done; while read line; do echo got $line; done; exit 3"
    with on_terminal(agent, "run", "--", "/bin/sh", "-c", script) as first:
        first.expect(b"up")
        first.send(b"one\ntwo\n")
        first.expect(b"two")  # the echo: they are in the node's terminal
        node = only_node(agent)
        save(agent, first)
    with on_terminal(agent, "restore", node) as second:
        second.wait_until_raw()
        second.send(b"three\n\x04")
        second.expect(b"three")
        with open(go, "x", encoding="utf-8"):
            pass
        assert second.rest().splitlines()[-3:] == [b"got one", b"got two", b"got three"]
        assert second.process.wait(PATIENCE) == 3


def test_output_at_random_moments(agent):
    """Every line is on one of the terminals, once."""
    chance = random.Random(f"{SEED} terminal")
    script = f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i + 1)); sleep 0.005; done"
    words = ["run", "--", "/bin/sh", "-c", script]
    shown = b""
    for _ in range(SAVES):
        # What singularityctl says is not in it.
        with on_terminal(agent, *words, stderr=subprocess.DEVNULL) as terminal:
            shown += terminal.expect(b"\n")
            time.sleep(chance.uniform(0, LINES * 0.005 / SAVES))
            words = ["restore", only_node(agent)]
            shown += save(agent, terminal)
    with on_terminal(agent, *words, stderr=subprocess.DEVNULL) as terminal:
        shown += terminal.rest()
        assert terminal.process.wait(PATIENCE) == 0
    wanted = b"".join(b"line %d\r\n" % number for number in range(LINES))
    assert shown == wanted, f"seed {SEED}: {saved_nodes.difference(shown, wanted)}"
