# SPDX-License-Identifier: GPL-2.0-or-later
"""singularityctl checkpoint and restore: programs without devices, what is refused, who may, what is printed."""

import os
import random
import shutil
import subprocess

import nodes
import pytest
import test_programs
import virtualnode
from saved_nodes import PATIENCE, SEED, USER, built

COUNT = "i=0; while [ $i -lt {} ]; do echo line $i; i=$((i+1)); sleep 0.05; done"


def lines(count):
    return "".join(f"line {number}\n" for number in range(count)).encode()


def start_program(agent, place, name):
    command, steps = test_programs.WORKLOADS[name]
    shutil.copytree(test_programs.PROGRAMS, place.path("programs"), dirs_exist_ok=True)
    for directory in (place.shared, place.path("programs")):
        os.chown(directory, USER, USER)
    words = [word.format_map({"threads": nodes.program("threads"), "steps": str(steps)}) for word in command]
    if words[-1].startswith("../"):  # the program changes its directory
        words[-1] = place.path("progress")
    return agent.run(words, directory=place.shared), steps


@pytest.mark.parametrize("name", ["threads", "pipeline", "tree", "torch_2", "torch_4"])
def test_programs_without_devices(place, agent, undisturbed, name):
    chance = random.Random(f"{SEED} {name}")
    node, steps = start_program(agent, place, name)
    for moment in sorted(chance.sample(range(1, steps * 2 // 3), 3)):
        virtualnode.wait_for(lambda when=moment: test_programs.progress(place) >= when or "exit" in agent.task(node), f"step {moment}", PATIENCE)
        agent.ok("checkpoint", node)
        assert not agent.leftovers()
        agent.ok("restore", node)
    assert agent.finish(node).decode() == undisturbed(name), f"seed {SEED}"
    assert test_programs.progress(place) == steps
    agent.ok("destroy", node)


def test_an_older_checkpoint_by_its_id(agent):
    """Output and all: what was written since then is not there."""
    node = agent.run(["/bin/sh", "-c", COUNT.format(40)])
    virtualnode.wait_for(lambda: agent.output(node).count(b"\n") >= 5, "output")
    first = agent.ok("checkpoint", "--continue", node)
    virtualnode.wait_for(lambda: agent.output(node).count(b"\n") >= 20, "more output")
    agent.ok("checkpoint", node)
    assert agent.ok("restore", first) == node
    assert agent.output(node).count(b"\n") < 20
    assert agent.finish(node) == lines(40)
    agent.ok("destroy", node)


def test_a_failed_checkpoint_leaves_the_program_running(agent):
    """What no image can hold is refused, with the reason, before anything is stopped."""
    script = "import os, time\nfd = os.open('/tmp/one', os.O_CREAT | os.O_RDWR, 0o600)\nos.link('/tmp/one', '/tmp/two')\nos.unlink('/tmp/one')\n" \
             "for i in range(40):\n print('line', i, flush=True)\n time.sleep(0.05)\nos.unlink('/tmp/two')"
    node = agent.run(["/usr/bin/python3", "-c", script])
    virtualnode.wait_for(lambda: agent.output(node).count(b"\n") >= 3, "output")
    done = agent.ctl("checkpoint", node, user=USER)
    assert done.returncode == 1 and "it was deleted under this name but has another" in done.stderr
    assert agent.finish(node) == lines(40)
    assert agent.checkpoints() == []
    agent.ok("destroy", node)


def test_others_may_not(agent):
    node = agent.run(["/bin/sleep", "100"])
    other = agent.ctl("checkpoint", node, user=virtualnode.BOB)
    assert other.returncode == 1 and "another user" in other.stderr
    checkpoint = agent.ok("checkpoint", node)
    for what in (node, checkpoint):
        other = agent.ctl("restore", what, user=virtualnode.BOB)
        assert other.returncode == 1 and "cannot find a checkpoint" in other.stderr
    assert agent.ctl("restore", "nothing", user=USER).returncode == 1
    agent.ok("restore", checkpoint, user=0)
    again = agent.ctl("restore", node, user=USER)
    assert again.returncode == 1 and "there is a virtual node of that name" in again.stderr
    agent.ok("destroy", node)


def test_a_program_of_root_is_refused(agent):
    """It has capabilities; it is told so before anything is stopped, and runs on."""
    node = agent.ok("run", "--detach", "--", "sleep", "1000", user=0)
    refused = agent.ctl("checkpoint", node)
    assert refused.returncode == 1 and "it has capabilities" in refused.stderr, refused.stderr
    assert "running" in agent.task(node)
    agent.ok("destroy", node, user=0)


def test_periodic_checkpoints(agent):
    """Only the last one is kept, and it restores after the death of everything."""
    node = agent.run(["/bin/sh", "-c", COUNT.format(100)], options=["--every", "1s"])
    seen = set()

    def several():
        seen.update(agent.checkpoints())
        return len(seen) >= 3
    virtualnode.wait_for(several, "checkpoints", PATIENCE)
    assert len(agent.checkpoints()) <= 2
    agent.ok("destroy", node)
    agent.ok("restore", node)
    assert agent.finish(node) == lines(100)
    agent.ok("destroy", node)


def run_in_foreground(agent, *words):
    return subprocess.Popen(agent.command(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
                            user=USER, group=USER, extra_groups=[])


def test_a_program_in_the_foreground(agent):
    """Its caller goes on with --continue; after a restore whoever restores it is its caller."""
    first = run_in_foreground(agent, "run", "--", "/bin/sh", "-c", "while read line; do echo got $line; done; echo to stderr >&2; exit 7")
    first.stdin.write(b"one\n")
    first.stdin.flush()
    assert first.stdout.readline() == b"got one\n"
    node = next(iter(agent.nodes()))
    agent.ok("checkpoint", "--continue", node)
    first.stdin.write(b"two\n")
    first.stdin.flush()
    assert first.stdout.readline() == b"got two\n"
    agent.ok("checkpoint", node)
    out, err = first.communicate(timeout=PATIENCE)
    assert out == b"" and b"was ended from outside" in err
    detached = agent.ctl("restore", "--detach", node, user=USER)
    assert detached.returncode == 1 and "foreground" in detached.stderr
    second = run_in_foreground(agent, "restore", node)
    second.stdin.write(b"three\n")
    second.stdin.flush()
    assert second.stdout.readline() == b"got three\n"
    agent.ok("checkpoint", "--continue", node)
    out, err = second.communicate(b"four\n", timeout=PATIENCE)
    assert out == b"got four\n" and b"to stderr" in err and second.returncode == 7
    virtualnode.wait_for(lambda: not agent.leftovers(), "everything to be gone")


def test_what_is_printed(agent):
    node = agent.run([built("workloads", "vector_add")], 1)
    agent.finish(node)
    done = agent.ctl("checkpoint", node, user=USER)
    assert done.stdout.strip() == agent.checkpoints()[0]
    last = done.stderr.splitlines()[-1]
    assert f"{node} saved in {done.stdout.strip()}" in last and "pause" in last and "total" in last
    assert "singularityctl: saving devices" in done.stderr and "committing" in done.stderr
    done = agent.ctl("restore", node, user=USER)
    assert done.stdout.strip() == node and "restored from" in done.stderr.splitlines()[-1]
    agent.ok("destroy", node)
    agent.store_is_whole()
