# SPDX-License-Identifier: GPL-2.0-or-later
"""Files and sockets that a program, or its user, changes while the agent's helpers, who are root, look at them: these neither wait
nor follow, what is another's stays another's, and the program is refused with the reason or saved, never lost."""

import contextlib
import os
import signal
import socket
import subprocess
import sys

import nodes
import pytest
import virtualnode
from saved_nodes import PATIENCE, USER
from virtualnode import BOB

DEVICES = "/run/singularity/devices"
IN_PLACE = {
    "nothing": "true",
    "a directory": f"mkdir {DEVICES}/0.sock",
    "a full directory": f"mkdir {DEVICES}/0.sock; echo > {DEVICES}/0.sock/file",
    "a file": f"echo x > {DEVICES}/0.sock",
    "a fifo": f"mkfifo {DEVICES}/0.sock",
    "a link to nowhere": f"ln -s nowhere {DEVICES}/0.sock",
    "a link to a file": f"ln -s /etc/passwd {DEVICES}/0.sock",
    "a link to itself": f"ln -s 0.sock {DEVICES}/0.sock",
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_nothing_takes_the_place_of_a_device(agent, name):
    """The directory is root's: the socket stays, whatever the program tries, and the program is saved and goes on."""
    script = (f"mv {DEVICES}/0.sock {DEVICES}/kept; rm -rf {DEVICES}/0.sock; {IN_PLACE[name]}; "
              f"stat -c '%n %F' {DEVICES}/*; echo ready; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); sleep 0.05; done")
    node = agent.run(["/bin/sh", "-c", script], 1)
    virtualnode.wait_for(lambda: b"ready" in agent.output(node), "the program", PATIENCE)
    found = [line for line in agent.output(node).decode().splitlines() if line.startswith(DEVICES)]
    assert found == [f"{DEVICES}/0.sock socket"], agent.output(node)
    agent.ok("checkpoint", "--continue", node)
    agent.ok("checkpoint", node)
    assert not agent.leftovers()
    agent.ok("restore", node)
    assert "running" in agent.task(node)
    agent.ok("destroy", node)
    assert not agent.leftovers()


def test_more_names_than_devices(agent):
    """Files of the names that helpers use, where the program may not write."""
    script = (f"cd {DEVICES}; mkfifo 1.sock 0.hidden put-away; ln -s /etc/shadow 2.sock; mkdir control; echo ready; "
              "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); sleep 0.05; done")
    node = agent.run(["/bin/sh", "-c", script], 1)
    virtualnode.wait_for(lambda: b"ready" in agent.output(node), "the program", PATIENCE)
    agent.ok("checkpoint", "--continue", node)
    agent.ok("checkpoint", node)
    assert not agent.leftovers()
    agent.ok("restore", node)
    assert "running" in agent.task(node)
    agent.ok("destroy", node)
    assert not agent.leftovers()


# Each opens the file `data` of the shared directory, says so and goes on for ever; somebody outside puts something else in its place.
OPENED = {"reading": "exec 9<data", "appending": "exec 9>>data", "both": "exec 9<>data"}


@pytest.fixture(name="victim")
def bobs_secret(place):
    """A file of Bob's of the same size and mode as Alice's."""
    directory = os.path.join(place.top, "bob")
    os.mkdir(directory, 0o700)
    path = os.path.join(directory, "secret")
    with open(path, "w", encoding="utf-8") as file:
        file.write("secret\n")
    os.chmod(path, 0o600)
    for one in (path, directory):
        os.chown(one, BOB, BOB)
    return path


def replace(place, trick, victim):
    data = place.path("data")
    os.unlink(data)
    if trick == "link":
        os.symlink(victim, data)
    elif trick == "fifo":
        os.mkfifo(data, 0o600)
        os.chown(data, USER, USER)
    elif trick == "directory":
        os.mkdir(data)
    elif trick == "hard link":
        os.link(victim, data)


@pytest.mark.parametrize("trick", ["link", "hard link", "fifo", "directory"])
@pytest.mark.parametrize("how", OPENED)
def test_a_file_that_is_another_one_at_the_restore(place, agent, victim, how, trick):
    """CRIU opens files as root: what the user could not open himself he does not get, and nothing waits for ever."""
    with open(place.path("data"), "w", encoding="utf-8") as file:
        file.write("public\n")
    os.chmod(place.path("data"), 0o600)
    os.chown(place.path("data"), USER, USER)
    read = "cat /proc/self/fd/9 2>/dev/null; head -c 100 <&9 2>/dev/null;" if how != "appending" else ""
    script = f"{OPENED[how]}; echo ready; while [ ! -e go ]; do sleep 0.05; done; echo stolen >&9; {read} echo end"
    node = agent.run(["/bin/sh", "-c", script], directory=place.shared)
    virtualnode.wait_for(lambda: b"ready" in agent.output(node), "the program", PATIENCE)
    agent.ok("checkpoint", node)
    replace(place, trick, victim)
    done = agent.ctl("restore", node, user=USER)
    print(done.stderr)
    with open(place.path("go"), "w", encoding="utf-8"):
        pass
    if done.returncode == 0:  # then it has nothing of Bob's
        output, _ = agent.ended(node)
        agent.ok("destroy", node)
        assert b"secret" not in output, output
    with open(victim, encoding="utf-8") as file:
        assert file.read() == "secret\n"
    assert done.returncode == 1 and ("data" in done.stderr or "a hidden file" in done.stderr), done
    assert victim not in done.stderr
    virtualnode.wait_for(lambda: not agent.leftovers(), "nothing to be left")
    os.unlink(place.path("go"))
    if os.path.isdir(place.path("data")):
        os.rmdir(place.path("data"))
    else:
        os.unlink(place.path("data"))
    with open(place.path("data"), "w", encoding="utf-8") as file:
        file.write("public\n")
    os.chmod(place.path("data"), 0o600)
    os.chown(place.path("data"), USER, USER)
    agent.ok("restore", node)
    agent.ok("destroy", node)


# How a program has the file `data` mapped, whose descriptor it has closed: how it was opened, protection, sharing, and whether
# only who may write to the file can open it so.
MAPPED = {
    "for writing": ("O_RDWR", "PROT_READ | mmap.PROT_WRITE", "MAP_SHARED", True),
    "for reading, opened for writing": ("O_RDWR", "PROT_READ", "MAP_SHARED", True),
    "for reading": ("O_RDONLY", "PROT_READ", "MAP_SHARED", False),
    "privately": ("O_RDWR", "PROT_READ | mmap.PROT_WRITE", "MAP_PRIVATE", True),
}
MAPS = """
import ctypes, mmap, os, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
fd = os.open('data', os.{flags})
memory = libc.mmap(None, 4096, mmap.{protection}, mmap.{sharing}, fd, 0)
os.close(fd)
print('ready', flush=True)
while not os.path.exists('go'): time.sleep(0.05)
if libc.mprotect(memory, 4096, mmap.PROT_READ | mmap.PROT_WRITE) == 0:
    ctypes.memmove(memory, b'stolen', 6)
print('end', flush=True)
"""


@pytest.mark.parametrize("trick", ["link", "hard link", None])
@pytest.mark.parametrize("how", MAPPED)
def test_a_mapped_file_that_is_another_one_at_the_restore(place, agent, how, trick):
    """Another's file that the user may read and nothing else; no descriptor says how it was opened."""
    victim = os.path.join(place.top, "of-root")
    for path, owner in ((victim, 0), (place.path("data"), USER)):
        with open(path, "w", encoding="utf-8") as file:
            file.write("public\n")
        os.chmod(path, 0o644)
        os.chown(path, owner, owner)
    flags, protection, sharing, can_write = MAPPED[how]
    script = MAPS.format(flags=flags, protection=protection, sharing=sharing)
    node = agent.run(["/usr/bin/python3", "-c", script], directory=place.shared)
    virtualnode.wait_for(lambda: b"ready" in agent.output(node), "the program", PATIENCE)
    agent.ok("checkpoint", node)
    if trick:
        replace(place, trick, victim)
    done = agent.ctl("restore", node, user=USER)
    print(done.stderr)
    with open(place.path("go"), "w", encoding="utf-8"):
        pass
    if done.returncode == 0:
        output, _ = agent.ended(node)
        agent.ok("destroy", node)
        assert b"end" in output, output
    with open(victim, encoding="utf-8") as file:
        assert file.read() == "public\n"
    refused = bool(trick) and can_write
    assert done.returncode == (1 if refused else 0), done
    if refused:
        assert "its user may not open it as the program had it" in done.stderr, done
    virtualnode.wait_for(lambda: not agent.leftovers(), "nothing to be left")


@pytest.mark.parametrize("name", ["d/socket", "/absolute/d/socket"])
def test_a_socket_whose_directory_is_another_one_at_the_restore(place, agent, victim, name):
    """CRIU removes the socket that has the name and binds it anew, as root: here one of Bob's."""
    name = name.replace("/absolute", place.shared)
    os.mkdir(place.path("d"))
    os.chown(place.path("d"), USER, USER)
    script = (f"import socket, time; s = socket.socket(socket.AF_UNIX); s.bind({name!r}); s.listen(); print('ready', flush=True); "
              "time.sleep(1000)")
    node = agent.run(["/usr/bin/python3", "-c", script], directory=place.shared)
    virtualnode.wait_for(lambda: b"ready" in agent.output(node), "the program", PATIENCE)
    agent.ok("checkpoint", node)
    os.rename(place.path("d"), place.path("kept"))
    os.symlink(os.path.dirname(victim), place.path("d"))
    with socket.socket(socket.AF_UNIX) as bobs:
        path = os.path.join(os.path.dirname(victim), "socket")
        bobs.bind(path)
        before = os.stat(path)
        done = agent.ctl("restore", node, user=USER)
        print(done.stderr)
        assert os.path.samestat(os.stat(path), before), "Bob's socket is another one"
    assert done.returncode == 1 and "d/socket" in done.stderr and "may not make it" in done.stderr, done
    virtualnode.wait_for(lambda: not agent.leftovers(), "nothing to be left")
    os.unlink(place.path("d"))
    os.rename(place.path("kept"), place.path("d"))
    agent.ok("restore", node)
    agent.ok("destroy", node)


def test_a_watched_directory_that_is_another_one_at_the_restore(place, agent, victim):
    """The names of what is made in Bob's directory are not told."""
    os.mkdir(place.path("d"))
    os.chown(place.path("d"), USER, USER)
    script = ("import ctypes, os, time; libc = ctypes.CDLL(None); n = libc.inotify_init1(0); "
              "assert libc.inotify_add_watch(n, b'd', 0x100) == 1; print('ready', flush=True); print(os.read(n, 99), flush=True)")
    node = agent.run(["/usr/bin/python3", "-c", script], directory=place.shared)
    virtualnode.wait_for(lambda: b"ready" in agent.output(node), "the program", PATIENCE)
    agent.ok("checkpoint", node)
    os.rename(place.path("d"), place.path("kept"))
    os.symlink(os.path.dirname(victim), place.path("d"))
    done = agent.ctl("restore", node, user=USER)
    print(done.stderr)
    assert done.returncode == 1 and "watch" in done.stderr, done
    virtualnode.wait_for(lambda: not agent.leftovers(), "nothing to be left")
    os.unlink(place.path("d"))
    os.rename(place.path("kept"), place.path("d"))
    agent.ok("restore", node)
    with open(place.path("d/seen"), "w", encoding="utf-8"):
        pass
    output, _ = agent.ended(node)
    agent.ok("destroy", node)
    assert b"seen" in output, output


HOLDS = {
    "a stream": "a, b = socket.socketpair(); a.send(b'yz'); socket.send_fds(a, [b'x'], [fd])",
    "datagrams": "a, b = socket.socketpair(type=socket.SOCK_DGRAM); a.send(b'y'); socket.send_fds(a, [b'x'], [fd])",
}


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("kind", HOLDS)
def test_a_file_on_its_way_between_two_sockets(place, agent, victim, kind, swap):
    """A descriptor that nobody has taken yet, which no list of open files shows."""
    with open(place.path("data"), "w", encoding="utf-8") as file:
        file.write("public\n")
    os.chmod(place.path("data"), 0o600)
    os.chown(place.path("data"), USER, USER)
    script = ("import array, os, socket, time\n"
              "fd = os.open('data', os.O_RDWR | os.O_APPEND)\n"
              f"{HOLDS[kind]}\n"
              "os.close(fd)\n"
              "print('ready', flush=True)\n"
              "while not os.path.exists('go'): time.sleep(0.05)\n"
              "fds = []\n"
              "while not fds: fds = socket.recv_fds(b, 1, 1)[1]\n"
              "print(os.pread(fds[0], 100, 0).decode(), flush=True)\n")
    node = agent.run(["/usr/bin/python3", "-c", script], directory=place.shared)
    virtualnode.wait_for(lambda: b"ready" in agent.output(node), "the program", PATIENCE)
    agent.ok("checkpoint", node)
    if swap:
        replace(place, "link", victim)
    done = agent.ctl("restore", node, user=USER)
    print(done.stderr)
    with open(place.path("go"), "w", encoding="utf-8"):
        pass
    if done.returncode == 0:
        output, _ = agent.ended(node)
        agent.ok("destroy", node)
        assert b"secret" not in output and b"public" in output, output
    assert done.returncode == (1 if swap else 0) and ("its user may not open it" in done.stderr) == swap, done
    virtualnode.wait_for(lambda: not agent.leftovers(), "nothing to be left")


# What follows needs no agent: the library's driver, which can be held at a stage of criu.
WAITS = "echo ready; while [ ! -e go ]; do sleep 0.05; done; "


def saved(place, *command):
    node = place.start(*command)
    place.wait_for_output("ready")
    images, _ = place.dump(node)
    node.kill()
    return images


@contextlib.contextmanager
def held(place, images, stage):
    """A restore that has reached criu's stage and waits there for the end of the block; it has ended afterwards."""
    words = [nodes.DRIVER, "restore", f"--log={place.log}", f"--pause={stage}", images, place.root]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line == f"{stage}\n", process.stderr.read()
        yield process
        process.stdin.write("\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if line:
            os.kill(int(line), signal.SIGKILL)
        process.errors = process.communicate(timeout=PATIENCE)[1]
    finally:
        process.kill()
        process.communicate()


TOUCHES = """
import contextlib, ctypes, os, sys
libc = ctypes.CDLL(None)
for pid in map(int, sys.argv[1:]):
    with contextlib.suppress(PermissionError):
        os.kill(pid, 0)
        print('signals', pid)
    pidfd = os.pidfd_open(pid)
    if any(libc.syscall(438, pidfd, number, 0) >= 0 for number in range(1024)):  # pidfd_getfd
        print('takes descriptors of', pid)
    if libc.ptrace(0x4206, pid, 0, 0) == 0:  # PTRACE_SEIZE
        print('traces', pid)
    for name in ('mem', 'maps', 'environ', 'fd/0', 'root', 'cwd'):
        with contextlib.suppress(PermissionError, FileNotFoundError):
            os.close(os.open(f'/proc/{pid}/{name}', os.O_RDONLY))
            print('opens', name, 'of', pid)
print('end')
"""


def descendants(pid):
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as children:
            for child in map(int, children.read().split()):
                found += [child, *descendants(child)]
    return found


@pytest.mark.parametrize("stage", ["setup-namespaces", "post-restore"])
def test_the_user_cannot_touch_a_restore(place, stage):
    """Neither criu nor what it makes, as long as that has root's effective ids."""
    # A child that stays: one that has ended and is not waited for has no memory, and anybody may open its empty maps.
    images = saved(place, "/bin/sh", "-c", "exec 9<>data; rm data; sleep 1000 & echo ready; wait")
    with held(place, images, stage) as process:
        pids = descendants(process.pid)
        assert len(pids) >= (2 if stage == "setup-namespaces" else 4), pids  # criu; the node's init, shell and sleep
        done = subprocess.run([sys.executable, "-c", TOUCHES, *map(str, pids)], capture_output=True, text=True, timeout=PATIENCE, user=USER,
                              group=USER, extra_groups=[], check=True)
    assert done.stdout == "end\n" and not done.stderr, done
    assert process.returncode != nodes.FAILED, process.errors
