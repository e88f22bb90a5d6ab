# SPDX-License-Identifier: GPL-2.0-or-later
"""Who dies when: the job goes on where it can, and else ends everywhere, with a word and in time; nothing is left of it."""

import contextlib
import os
import signal
import time

import pytest
from rankhosts import PATIENCE, PATIENCE_OF_AGENTS, end
from virtualcluster.errors import wait_for

WAIT = "echo up $RANK; while [ ! -e /shared/{0} ]; do sleep 0.02; done; echo down $RANK"


@pytest.fixture(name="gate")
def make_gate(hosts, request):
    """A file that ranks wait for, opened by the test."""
    name = f"go-{request.node.name.replace('[', '-').replace(']', '')}"
    path = os.path.join(hosts.cluster.directory, "shared", name)
    with contextlib.suppress(FileNotFoundError):  # of a first try
        os.unlink(path)

    def let_go():
        with open(path, "w", encoding="ascii"):
            pass

    let_go.script = WAIT.format(name)
    yield let_go
    let_go()


def wait_up(hosts, name, job, count):
    wait_for(lambda: hosts.logs(name, job).count("up ") == count, PATIENCE, f"{count} ranks of {job} to run: {hosts.log(name)}")


def ended(hosts, name, job):
    return wait_for(lambda: hosts.state(name, job) == "ended" and hosts.jobs(name)[job], PATIENCE, f"{job} to end: {hosts.log(name)}")


@pytest.mark.parametrize("which", ["n1", "n2"])
def test_an_agent_dies_and_comes_again(hosts, gate, which):
    """The coordinator or another: ranks run on, nothing of their output is lost."""
    job = hosts.detach("n1", "n1,n2", "sh", "-c", gate.script, options=["--ranks-per-node", "2"])
    wait_up(hosts, "n1", job, 4)
    hosts.kill_agent(which)
    hosts.start_agent(which)
    gate()
    assert "exit 0" in ended(hosts, "n1", job)
    for rank in range(4):
        assert hosts.logs("n1", job, "--rank", str(rank)) == f"up {rank}\ndown {rank}\n"
    assert hosts.log(which).count("serving on") >= 2


def test_all_agents_die_and_come_again(hosts, gate):
    job = hosts.detach("n1", "n1,n2,n3", "sh", "-c", gate.script)
    wait_up(hosts, "n1", job, 3)
    for name in hosts.names:
        hosts.kill_agent(name)
    gate()  # the ranks end while there is no agent
    for name in hosts.names:
        hosts.start_agent(name)
    assert "exit 0" in ended(hosts, "n1", job)
    assert hosts.logs("n1", job).count("down") == 3


def test_who_waits_in_the_foreground_waits_for_the_next_agent(hosts, gate):
    process = hosts.begin("n1", "n1,n2", "sh", "-c", gate.script)
    try:
        for _ in range(2):
            assert process.stdout.readline().startswith("up ")
        hosts.kill_agent("n1")
        hosts.start_agent("n1")
        gate()
        output, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert sorted(output.split()) == ["0", "1", "down", "down"]
    finally:
        end(process)


def test_a_job_in_the_foreground_ends_with_its_user(hosts, gate):
    process = hosts.begin("n1", "n1,n2", "sh", "-c", gate.script)
    for _ in range(2):
        assert process.stdout.readline().startswith("up ")
    end(process)
    hosts.assert_clean()


def test_an_agent_that_does_not_come_again(hosts, gate):
    """Its ranks are ended when it comes in the end, however late."""
    job = hosts.detach("n1", "n1,n2", "sh", "-c", gate.script)
    wait_up(hosts, "n1", job, 2)
    hosts.kill_agent("n2")
    try:
        line = ended(hosts, "n1", job)
        assert f"host n2 has not been heard of for {PATIENCE_OF_AGENTS}000ms" in line and "exit 1" in line
    finally:
        hosts.start_agent("n2")
    hosts.assert_clean(detached=[job])


def test_a_coordinator_that_does_not_come_again(hosts, gate):
    job = hosts.detach("n1", "n2,n3", "sh", "-c", gate.script)
    wait_up(hosts, "n1", job, 2)
    hosts.kill_agent("n1")
    try:
        for name in ("n2", "n3"):
            wait_for(lambda host=name: not hosts.left(host), PATIENCE, f"{name} to end its part: {hosts.left(name)}")
            assert "the job's coordinator, the agent of n1; the job ends here" in hosts.log(name)
    finally:
        hosts.start_agent("n1")
    line = ended(hosts, "n1", job)
    assert "has none of that name" in line


def test_a_record_is_lost(hosts, gate):
    """What nobody can ask for any more does not live on."""
    job = hosts.detach("n1", "n1,n2", "sh", "-c", gate.script)
    wait_up(hosts, "n1", job, 2)
    hosts.kill_agent("n2")
    hosts.host("n2").run(["sh", "-c", "for record in /run/singularity/members/*/record; do echo nothing >$record; done"])
    hosts.start_agent("n2")
    assert "n2 has none of that name" in ended(hosts, "n1", job)
    assert f"{job}-1: nothing is known of its job" in hosts.log("n2")
    hosts.assert_clean(detached=[job])


def test_a_host_dies(hosts, gate):
    job = hosts.detach("n1", "n1,n2", "sh", "-c", gate.script)
    wait_up(hosts, "n1", job, 2)
    hosts.cluster.kill("n3")  # one that has nothing to do with it
    hosts.cluster.kill("n2")
    began = time.monotonic()
    line = ended(hosts, "n1", job)
    assert "host n2 has not been heard of" in line
    assert time.monotonic() - began < 5 * PATIENCE_OF_AGENTS
    for name in ("n2", "n3"):
        hosts.cluster.boot(name)
        hosts.start_agent(name)
    hosts.wait_reachable("n2", "n3")


def test_a_host_is_cut_off(hosts, gate):
    """Both sides end their parts; afterwards neither has the other's."""
    job = hosts.detach("n1", "n1,n2", "sh", "-c", gate.script)
    wait_up(hosts, "n1", job, 2)
    hosts.cluster.partition("n2")
    try:
        assert "host n2 has not been heard of" in ended(hosts, "n1", job)
        wait_for(lambda: not hosts.left("n2"), PATIENCE, f"n2 to end its part: {hosts.left('n2')}")
    finally:
        hosts.cluster.heal("n2")
    hosts.wait_reachable("n2")


def test_a_short_interruption_is_nothing(hosts, gate):
    job = hosts.detach("n1", "n1,n2", "sh", "-c", gate.script)
    wait_up(hosts, "n1", job, 2)
    hosts.cluster.partition("n2")
    hosts.cluster.heal("n2")
    gate()
    assert "exit 0" in ended(hosts, "n1", job)


def test_a_node_dies(hosts, gate):
    """Somebody kills all of a node on one host."""
    job = hosts.detach("n1", "n1,n2", "sh", "-c", gate.script)
    wait_up(hosts, "n1", job, 2)
    hosts.ctl("n2", "destroy", f"{job}-1")
    line = ended(hosts, "n1", job)
    assert "rank 1 on n2 has ended with signal 9" in line and f"exit {128 + signal.SIGKILL}" in line


def test_a_node_dies_unseen(hosts, gate):
    """The agent finds it dead and its network gone at once: the network's end is no fault, it has ended with its node."""
    job = hosts.detach("n1", "n1,n2", "sh", "-c", gate.script)
    wait_up(hosts, "n1", job, 2)
    host, agent = hosts.host("n2"), hosts.agent_pid("n2")
    host.run(["kill", "-STOP", agent])
    try:
        host.run(["sh", "-c", "kill -KILL $(grep -l '^singularity-ini' /proc/[0-9]*/comm | cut -d/ -f3)"])
        # Whatever ends remains a zombie, of which there is no program.
        wait_for(lambda: "singularity-network" not in host.run(["sh", "-c", "readlink /proc/[0-9]*/exe"], check=False).stdout,
                 PATIENCE_OF_AGENTS / 2, "the network to end")
    finally:
        host.run(["kill", "-CONT", agent])
    assert f"rank 1 on n2 has ended with signal {signal.SIGKILL:d}" in ended(hosts, "n1", job)


def test_an_agent_dies_while_a_job_is_made(hosts):
    for which in ("n1", "n2"):
        process = hosts.begin("n1", "n1,n2,n3", "sleep", "1000", options=["--detach"])
        wait_for(lambda host=which: hosts.host(host).run("ls /run/singularity/members", check=False).stdout, PATIENCE, "the job to begin")
        hosts.kill_agent(which)
        hosts.start_agent(which)
        output, _ = process.communicate(timeout=PATIENCE)
        job = output.strip()
        # It was made in time, or it ends with a word.
        wait_for(lambda name=job: not name or hosts.state("n1", name) in ("running", "ended", "gone"), PATIENCE, "the job to be one or the other")
        for name in hosts.jobs("n1", user="root"):
            hosts.ctl("n1", "destroy", name, user="root")
        hosts.assert_clean()


def test_a_job_is_destroyed_while_it_is_made(hosts):
    for _ in range(5):
        job = hosts.detach("n1", "n1,n2,n3", "sleep", "1000")
        hosts.ctl("n1", "destroy", job)
        hosts.assert_clean()


def test_the_network_dies(hosts, gate):
    """Without its network a job cannot go on, whatever its ranks do."""
    job = hosts.detach("n1", "n1,n2", "sh", "-c", gate.script)
    wait_up(hosts, "n1", job, 2)
    hosts.host("n2").run(["sh", "-c", "kill -9 $(grep -l '^singularity-net' /proc/[0-9]*/comm | cut -d/ -f3)"])
    assert "host n2: cannot use the network of" in ended(hosts, "n1", job)


def test_munge_is_away_for_a_while(hosts):
    host = hosts.host("n2")
    pid = host.run(["sh", "-c", "grep -l '^munged' /proc/[0-9]*/comm | cut -d/ -f3"]).stdout.strip()
    host.run(["kill", "-STOP", pid])
    try:
        done = hosts.run("n3", "n2", "true")
        assert done.returncode == 1 and "cannot reach the agent of" in done.stderr
    finally:
        host.run(["kill", "-CONT", pid])
    wait_for(lambda: hosts.run("n3", "n2", "true").returncode == 0, PATIENCE, "jobs to be possible again")
