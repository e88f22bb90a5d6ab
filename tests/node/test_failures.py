# SPDX-License-Identifier: GPL-2.0-or-later
"""Who dies when, what the others see of it, and what is left."""

import contextlib
import os
import signal
import subprocess
import threading

import pytest
from virtualnode import ALICE, BUILD, CREATE, KEPT, PATIENCE, START, TERMINAL, WAIT, Refused, program, spec, task, text, wait_for


def test_agent_killed_and_started_again(own_agent):
    """Nodes live on with all their tasks, statuses that nobody has asked for and output included."""
    agent = own_agent
    with agent.connect(ALICE) as connection:
        name, pid = connection.create(uid=ALICE, gid=ALICE)
        go = os.path.join(agent.directory, "go")
        go_on = f"while [ ! -e {go} ]; do sleep 0.02; done; "
        chatty, _ = connection.start(name, ["sh", "-c", f"echo before; {go_on} echo after; exec sleep 1000"], stdio=KEPT)
        quick, _ = connection.start(name, ["sh", "-c", f"{go_on} exit 4"], stdio=KEPT)
        typist, (master,) = connection.start(name, ["cat"], stdio=TERMINAL)
        wait_for(lambda: connection.log(name, chatty) == b"before\n", "its output")
    agent.kill()
    assert os.path.exists(f"/proc/{pid}")
    with open(go, "w", encoding="ascii"):
        pass
    os.write(master, b"still here\n")
    agent.start()
    with agent.connect(ALICE) as connection:
        assert connection.wait(name, quick) == (4 << 8, False)
        assert b"still here" in os.read(master, 100)
        os.close(connection.attach(name, typist))
        wait_for(lambda: connection.log(name, chatty) == b"before\nafter\n", "its output, what was written meanwhile included")
        connection.signal(name, chatty, signal.SIGKILL)
        assert connection.wait(name, chatty) == (signal.SIGKILL, False)
        assert connection.run(name, ["echo", "new"]) == (0, "new\n")
        connection.destroy(name)
    os.close(master)
    # It is another's child since the first agent's death: when it is reaped is not ours to say.
    wait_for(lambda: not agent.leftovers(), "everything to be gone")


def test_run_survives_the_agent(own_agent):
    process = subprocess.Popen(own_agent.command("run", "--", "sh", "-c", "echo up; read line; echo got $line; exit 6"),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert process.stdout.readline() == "up\n"
    # The program may be faster than the agent's word to run that it has begun.
    wait_for(lambda: "1: running" in own_agent.ctl("ps").stdout, "the agent to know that it runs")
    own_agent.kill()
    own_agent.start()
    process.stdin.write("word\n")
    process.stdin.flush()
    assert process.stdout.readline() == "got word\n"
    assert process.wait(PATIENCE) == 6
    process.stdin.close()
    process.stdout.close()
    assert not own_agent.leftovers()


def test_agent_killed_while_nodes_are_made(own_agent):
    """A node exists with its record or not at all."""
    agent = own_agent
    with agent.connect() as connection:
        for _ in range(10):
            connection.send(CREATE, spec(uid=ALICE, gid=ALICE))
        wait_for(lambda: os.listdir(agent.state), "the first to begin")
        agent.kill()
    agent.start()
    with agent.connect() as connection:
        for name in os.listdir(agent.state):
            with contextlib.suppress(Refused):  # one that was not allowed to live ends by itself
                connection.destroy(name)
    wait_for(lambda: not agent.leftovers(), "everything to be gone")


def test_init_killed(agent):
    with agent.connect() as connection:
        name, pid = connection.create(uid=ALICE, gid=ALICE)
        number, _ = connection.start(name, ["sleep", "1000"], stdio=KEPT)
        waiting = connection.send(WAIT, text(name) + b"\1\0\0\0\0")
        os.kill(pid, signal.SIGKILL)
        _, fields, _ = connection.answer(waiting)
        assert number == 1 and fields.take("i?") == (signal.SIGKILL, True)
        with pytest.raises(Refused, match="there is none of that name"):
            connection.wait(name, number)
    assert not os.path.exists(os.path.join(agent.state, name))


def test_init_killed_under_run(agent):
    process = subprocess.Popen(agent.command("run", "--", "sh", "-c", "echo up; sleep 1000"), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    (pid,) = agent.init_pids()
    os.kill(pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 137 and "was ended from outside" in errors


def test_init_stopped_does_not_stop_the_agent(agent):
    """Init belongs to the user, who may do this from a shell on the machine."""
    with agent.connect() as connection:
        name, pid = connection.create(uid=ALICE, gid=ALICE)
        os.kill(pid, signal.SIGSTOP)
        asked = connection.send(START, text(name) + task(["true"], stdio=KEPT))
        other, _ = connection.create(uid=ALICE, gid=ALICE)
        assert connection.run(other, ["echo", "fine"]) == (0, "fine\n")
        connection.destroy(other)
        with pytest.raises(Refused, match="has not answered|has ended"):
            connection.answer(asked)
        connection.destroy(name)


def test_client_killed(agent):
    process = subprocess.Popen(agent.command("run", "--", "sh", "-c", "echo up; sleep 1000"), stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    assert len(agent.init_pids()) == 1
    process.kill()
    process.communicate(timeout=PATIENCE)
    wait_for(lambda: not agent.leftovers(), "the node to end with the one who has made it")


def test_owner_that_does_not_come_back(own_agent):
    """A tied node whose owner died together with the agent ends as well."""
    process = subprocess.Popen(own_agent.command("run", "--", "sh", "-c", "echo up; sleep 1000"), stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    own_agent.kill()
    process.kill()
    process.communicate(timeout=PATIENCE)
    own_agent.start()
    wait_for(lambda: not own_agent.leftovers(), "the node to end", 60)


def test_fifty_nodes_at_once(agent):
    results = {}

    def one(number):
        with agent.connect() as connection:
            name, pid = connection.create(uid=ALICE, gid=ALICE, hostname=f"n{number}")
            results[number] = connection.run(name, ["cat", "/proc/sys/kernel/hostname"]), pid
            connection.destroy(name)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: value[0] for number, value in results.items()} == {number: (0, f"n{number}\n") for number in range(50)}
    assert len({pid for _, pid in results.values()}) == 50


def test_many_tasks_in_one_node(agent):
    with agent.connect() as connection:
        name, _ = connection.create(uid=ALICE, gid=ALICE)
        numbers = [connection.start(name, ["sh", "-c", f"exit {number % 200}"], stdio=KEPT)[0] for number in range(60)]
        assert [connection.wait(name, number, True)[0] >> 8 for number in numbers] == [number % 200 for number in range(60)]
        connection.destroy(name)


def test_a_stale_record_is_not_believed(own_agent):
    """A number that belongs to another process by now: the files go, the process stays."""
    agent = own_agent
    with agent.connect() as connection:
        name, pid = connection.create(uid=ALICE, gid=ALICE)
    with open(os.path.join(agent.state, name, "record"), "rb") as file:
        record = file.read()
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        agent.kill()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "init's end")
        with open(os.path.join(agent.state, name, "record"), "wb") as file:
            file.write(record.replace(pid.to_bytes(4, "little"), stranger.pid.to_bytes(4, "little"), 1))
        agent.start()
        assert os.listdir(agent.state) == [], agent.log()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_two_agents_do_not_share_a_state(agent):
    second = subprocess.run([program("singularityd"), "--socket", agent.socket, "--state", agent.state, "--staging", agent.staging],
                            capture_output=True, text=True,
                            timeout=PATIENCE, env=dict(os.environ, SINGULARITY_LIBDIR=BUILD, SINGULARITY_CONF="/nonexistent/conf"))
    assert second.returncode == 1 and "another node agent" in second.stderr, second.stderr
    with agent.connect():
        pass
