# SPDX-License-Identifier: GPL-2.0-or-later
"""tests/reap: however a command ends, and however its processes are detached, none of them is left."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

REAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reap")
PATIENCE = 60
# A process that has left its parent, session and process group, and does not listen to TERM. Its pid is in the file named $1.
DETACHED = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(1000)
    os._exit(0)
os.wait()
"""


def reap(*command, grace="1", **more):
    return subprocess.Popen([REAP, "--grace", grace, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def detached(path, then):
    """A command that starts such a process and then runs the shell's words."""
    return ["sh", "-c", f'"{sys.executable}" -c "$1" "$2"; {then}', "sh", DETACHED, str(path)]


def pid_in(path):
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, f"no '{path}' within {PATIENCE} s"
        time.sleep(0.01)
    return int(path.read_text())


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("words, status", [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)])
def test_the_status_is_the_commands(words, status):
    process = reap("sh", "-c", words)
    assert process.communicate(timeout=PATIENCE) == ("", "") and process.returncode == status


def test_processor_time_is_that_of_all_processes():
    """Also of one that has left its parent, and whose parent has ended."""
    spend = "import time\nwhile time.process_time() < 0.5: pass"
    words = f"({sys.executable} -c '{spend}' &) ; exec {sys.executable} -c '{spend}'"
    process = subprocess.Popen([REAP, "--cost", "sh", "-c", words], stderr=subprocess.PIPE, text=True)
    _, said = process.communicate(timeout=PATIENCE)
    spent = re.fullmatch(r"reap: ([0-9.]+) s of processor time\n", said)
    assert spent and float(spent[1]) >= 1.0 and process.returncode == 0, said


def test_a_command_that_is_not_there():
    process = reap("/nonexistent/program")
    assert "cannot run '/nonexistent/program': No such file" in process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 127


@pytest.mark.parametrize("own, status", [(0, 1), (7, 7)])
def test_what_is_left_behind_is_named_and_killed(tmp_path, own, status):
    process = reap(*detached(tmp_path / "pid", f"exit {own}"))
    _, complaint = process.communicate(timeout=PATIENCE)
    pid = pid_in(tmp_path / "pid")
    assert process.returncode == status and f"LEFT BEHIND by a command that has ended, and killed: {pid} (" in complaint
    assert not is_alive(pid)


def test_what_ends_in_a_moment_is_not_left_behind():
    process = reap("sh", "-c", "sleep 1 & exit 0")
    assert process.communicate(timeout=PATIENCE) == ("", "") and process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_told_to_end(tmp_path, number):
    process = reap(*detached(tmp_path / "pid", "sleep 1000"))
    pid = pid_in(tmp_path / "pid")
    process.send_signal(number)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number and not is_alive(pid)


def test_a_command_has_time_to_clean_up(tmp_path):
    """Also one in a reap of its own, whose starter dies of the same signal, as ctest does."""
    done, ready = tmp_path / "done", tmp_path / "ready"
    inner = f"trap 'sleep 2; touch {done}; exit 3' TERM; touch {ready}; while :; do sleep 0.1; done"
    process = reap("sh", "-c", f'"{REAP}" --grace 20 sh -c "$1" & wait', "sh", inner, grace="30")
    deadline = time.monotonic() + PATIENCE
    while not ready.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 143 and done.exists()


def test_the_death_of_its_starter(tmp_path):
    """kill -9 of whoever has started it: nobody waits for it then, so the test waits for the process."""
    starter = subprocess.Popen(["sh", "-c", '"$@" & wait', "sh", REAP, "--grace", "1", *detached(tmp_path / "pid", "sleep 1000")])
    pid = pid_in(tmp_path / "pid")
    starter.kill()
    starter.wait()
    deadline = time.monotonic() + PATIENCE
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} lives on"
        time.sleep(0.05)
