# SPDX-License-Identifier: GPL-2.0-or-later
"""What a checkpoint says of itself, requests and names, changed with intent, and users who ask for what is not theirs: each is
refused with its reason, the agent lives on, nothing is left, and the checkpoint that nobody has touched still restores."""

import array
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess

import pytest
import saved_nodes
import virtualnode
from hostile import put
from saved_nodes import PATIENCE, USER
from virtualnode import ALICE, BOB, text

CHECKPOINT, RESTORE = 80, 81  # spank/agent/protocol/agent_messages.hpp
RESTORED = struct.pack("=II?", 0, 0, False)  # on how many proxies, where, detached


# --- Manifests


NAMES = [b"../x", b"a/b", b"", b".", b"..", b"x" * 300, b"a\nb", b"-x", b"\x1b[2J", b"\xff\xfe", b"/etc/passwd"]


@pytest.mark.parametrize("name", NAMES)
def test_name_of_the_node(scene, name):
    before = {place: sorted(os.listdir(place)) for place in ("/", scene.agent.directory)}
    checkpoint = scene.good.copy()
    checkpoint.rename(name)
    said = scene.refuses(checkpoint, "a name has 1 to 64 letters")
    print(said)
    assert said.isprintable()
    assert before == {place: sorted(os.listdir(place)) for place in before}


def field_at(record, skip):
    """Where the number behind so many texts of the node's specification is."""
    at = 8
    for _ in range(skip):
        at += 4 + struct.unpack_from("=I", record, at)[0]
    return at


def with_uid(uid):
    return lambda record: put(record, "I", field_at(record, 3), uid)


def with_gid(gid):
    return lambda record: put(record, "I", field_at(record, 3) + 4, gid)


RECORDS = {
    "root's": (with_uid(0), "of another virtual node or user"),
    "another user's": (with_uid(BOB), "of another virtual node or user"),
    "of root's group": (with_gid(0), "of another virtual node or user"),
    "cut off": (lambda record: record[:-1], "of another release"),
    "with more behind it": (lambda record: record + b"\0", "of another release"),
    "of another version": (lambda record: put(record, "H", 0, 7), "of another release"),
    "with a list of 4 billion": (lambda record: put(record, "I", field_at(record, 3) + 8, 0xFFFFFFFF), "of another release"),
    "empty": (lambda record: b"", "of another release"),
}


@pytest.mark.parametrize("name", RECORDS)
def test_record_of_the_node(scene, name):
    change, *words = RECORDS[name]
    checkpoint = scene.good.copy()
    record = checkpoint.attributes[checkpoint.node, b""]
    record[b"record"] = change(record[b"record"])
    print(scene.refuses(checkpoint, *words))


def test_root_in_record_and_manifest(scene):
    """All of it says root, and lies where root's checkpoints lie: a user does not get at it, and what root would restore is not root's."""
    checkpoint = scene.good.copy()
    record = checkpoint.attributes[checkpoint.node, b""]
    record[b"record"] = with_gid(0)(with_uid(0)(record[b"record"]))
    written = checkpoint.write(scene.agent.store, 0, "changed")
    scene.refuses_id(written, "cannot find a checkpoint")
    print(scene.refuses_id(written, "", by=0))


def test_group_of_another(scene):
    """The record and the manifest agree on a group in which the user is not."""
    checkpoint = scene.good.copy()
    record = checkpoint.attributes[checkpoint.node, b""]
    record[b"record"] = with_gid(4)(record[b"record"])
    print(scene.refuses(checkpoint, "not in group 4", gid=4))


def test_no_record(scene):
    checkpoint = scene.good.copy()
    del checkpoint.attributes[checkpoint.node, b""][b"record"]
    checkpoint.attributes[checkpoint.node, b""][b"other"] = b"x"
    scene.refuses(checkpoint, "it has no record of its virtual node")


def test_two_nodes(scene):
    checkpoint = scene.good.copy()
    checkpoint.attributes[b"other", b""] = {b"record": checkpoint.attributes[checkpoint.node, b""][b"record"]}
    scene.refuses(checkpoint, "not exactly one virtual node")


def test_a_manifest_among_another_users(scene):
    """Alice's, moved or linked to where Bob's lie: his restore neither gets it nor says what is in it."""
    users = os.path.join(scene.agent.store, "users")
    shutil.copytree(os.path.join(users, str(ALICE)), os.path.join(users, str(BOB)), symlinks=True)
    try:
        print(scene.refuses_id(scene.id, by=BOB))
        path = os.path.join(users, str(BOB), "checkpoints", scene.id)
        os.unlink(path)
        os.symlink(os.path.join(users, str(ALICE), "checkpoints", scene.id), path)
        print(scene.refuses_id(scene.id, by=BOB))
    finally:
        shutil.rmtree(os.path.join(users, str(BOB)))


# --- Requests


@pytest.mark.parametrize("name", ["../x", "a/b", "", "x" * 300, "a\nb", "..", "/etc/passwd", "%s%n", "\x1b[2J"])
def test_names_in_commands(scene, name):
    for command in (["checkpoint", "--", name], ["restore", "--", name], ["logs", "--", name], ["destroy", "--", name],
                    ["run", "--detach", "--name", name, "--", "true"]):
        if command[0] == "run" and not name:
            continue  # the agent chooses one
        for user in (USER, 0):
            done = scene.agent.ctl(*command, user=user)
            assert done.returncode not in (0, -signal.SIGSEGV) and done.stderr and not done.stdout, (command, done)
            assert done.returncode > 0 and done.stderr.strip().replace("\n", "").isprintable(), (command, done)
            assert "Traceback" not in done.stderr and "terminate" not in done.stderr
    scene.nothing_is_left()


def hears(connection):
    """What comes back for a raw packet: the types of packets, and at the end None if the agent has hung up."""
    found = []
    try:
        while raw := connection.socket.recv(1 << 20):
            found.append(struct.unpack_from("=HHI", raw)[1])
            if found[-1] == virtualnode.FAILED:
                return found
    except ConnectionResetError:
        pass
    return [*found, None]


def request(kind, body):
    return struct.pack("=HHI", 1, kind, 1) + body


SAVE = request(CHECKPOINT, text("x") + b"\0")
LOAD = request(RESTORE, text("x") + RESTORED)


@pytest.mark.parametrize("packet", [
    *[good[:size] for good in (SAVE, LOAD) for size in (1, 4, 7, 8, 11, len(good) - 1)], SAVE + b"\0", LOAD + b"\0", SAVE[:-1] + b"\2",
    request(RESTORE, struct.pack("=I", 0xFFFFFFFF) + b"x" * 8), request(RESTORE, text("a\0b") + RESTORED),
    request(CHECKPOINT, text("a\0b") + b"\0"), request(82, b""), request(83, b""), b"\0" * (384 << 10), b"\xff" * 100000])
def test_packets_that_are_no_request(scene, packet):
    with scene.agent.connect(BOB) as connection, scene.agent.connect(BOB) as other:
        connection.socket.send(packet)
        assert hears(connection) == [None]
        assert other.ask(virtualnode.LIST)[1].take("I") == 0
    scene.nothing_is_left()


def test_a_packet_that_is_too_long(scene):
    """More than the agent takes, which root's socket can hold."""
    with scene.agent.connect() as connection:
        connection.socket.setsockopt(socket.SOL_SOCKET, 32, 4 << 20)  # SO_SNDBUFFORCE
        connection.socket.send(request(RESTORE, text("x" * (600 << 10)) + RESTORED))
        assert hears(connection) == [None]
    scene.nothing_is_left()


@pytest.mark.parametrize("count", [1, 2, 4, 5, 250])
def test_too_many_descriptors(scene, count):
    def held():
        return len(os.listdir(f"/proc/{scene.agent.process.pid}/fd"))
    with scene.agent.connect() as other:
        other.ask(virtualnode.LIST)
        before = held()
        for good in (SAVE, LOAD):
            with scene.agent.connect(BOB) as connection, open("/dev/null", "rb") as null:
                control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null.fileno()] * count))]
                connection.socket.sendmsg([good], control)
                assert hears(connection) in ([virtualnode.FAILED], [None])
        other.ask(virtualnode.LIST)
        virtualnode.wait_for(lambda: held() == before, "descriptors to be closed")
    scene.nothing_is_left()


def test_many_restores_at_once(scene):
    """A user cannot make the agent start as many processes as he likes."""
    most = 0
    with scene.agent.connect(BOB) as connection, scene.agent.connect(ALICE) as other:
        asked = [connection.send(RESTORE, text("nothing") + RESTORED) for _ in range(200)]
        refusals = []
        for token in asked:
            most = max(most, len(scene.agent.workers()))
            with pytest.raises(virtualnode.Refused) as refused:
                while connection.answer(token)[0] == 82:  # progress
                    pass
            refusals.append(str(refused.value))
        assert any("per_user.restores" in one for one in refusals), refusals[0]
        assert most <= 20, most
        # Somebody else has his own share.
        with pytest.raises(virtualnode.Refused, match="cannot find a checkpoint"):
            token = other.send(RESTORE, text("nothing") + RESTORED)
            while other.answer(token)[0] == 82:
                pass
    scene.nothing_is_left()


# --- Other users


def readable_by(uid, top):
    """Files below a directory that this user can open, and directories that he can list."""
    script = ("import os, sys\n"
              "for where, directories, names in os.walk(sys.argv[1]):\n"
              "    print(where)\n"
              "    for name in names:\n"
              "        try:\n"
              "            os.close(os.open(os.path.join(where, name), os.O_RDONLY | os.O_NONBLOCK))\n"
              "        except OSError:\n"
              "            continue\n"
              "        print(os.path.join(where, name))\n")
    done = subprocess.run(["python3", "-c", script, top], capture_output=True, text=True, user=uid, group=uid, extra_groups=[],
                          timeout=PATIENCE, check=True, cwd="/")
    return {os.path.relpath(line, top) for line in done.stdout.splitlines()}


def test_another_user(scene):
    """While the node runs: neither its state nor its store, staging, sockets, output or processes are his."""
    agent = scene.agent
    program = saved_nodes.foreground(agent, "restore", scene.id)
    saved_nodes.answers(program)
    node = scene.node
    try:
        agent.ok("checkpoint", "--continue", node)
        saved_nodes.answers(program)
        for command in (["checkpoint", node], ["checkpoint", "--continue", node], ["logs", node], ["destroy", node]):
            done = agent.ctl(*command, user=BOB)
            assert done.returncode == 1 and "belongs to another user" in done.stderr and not done.stdout, (command, done)
        done = agent.ctl("restore", node, user=BOB)
        assert done.returncode == 1 and "cannot find a checkpoint" in done.stderr, done
        assert node not in agent.ok("ps", user=BOB)
        with agent.connect(BOB) as bob:
            for kind, body in ((CHECKPOINT, text(node) + b"\0"), (CHECKPOINT, text(node) + b"\1"), (virtualnode.TIE, text(node)),
                               (virtualnode.ATTACH, text(node) + b"\1\0\0\0"), (virtualnode.LOG, text(node) + b"\1\0\0\0")):
                with pytest.raises(virtualnode.Refused, match="belongs to another user"):
                    bob.ask(kind, body)
        readable = readable_by(BOB, agent.directory)
        assert readable <= {".", "log", "singularity.yaml", os.path.join("nodes", node, "hosts")}, readable
        # What may be passed, but not listed.
        inside = os.path.join(agent.state, node)
        assert readable_by(BOB, os.path.join(inside, "run")) <= {".", "sockets"}
        for path in (os.path.join(inside, "run", "devices", "0.sock"), os.path.join(inside, "control", "0.sock")):
            with pytest.raises(PermissionError):
                virtualnode.Connection(path, BOB)
        for name in ("record", "log.1", "proxy.0.log", "worker"):
            done = subprocess.run(["cat", os.path.join(inside, name)], user=BOB, group=BOB, extra_groups=[], capture_output=True, check=False,
                                  timeout=PATIENCE)
            assert done.returncode != 0 and not done.stdout, name
        saved_nodes.answers(program)
    finally:
        program.communicate(timeout=PATIENCE)
    scene.nothing_is_left()
    forget_others(scene)


def forget_others(scene):
    """Checkpoints that the test has made."""
    users = os.path.join(scene.agent.store, "users", str(USER), "checkpoints")
    for name in os.listdir(users):
        if name != scene.id:
            os.unlink(os.path.join(users, name))


CHANGES = """
import os, sys
directory = sys.argv[1]
socket, own = (os.path.join(directory, name) for name in ("0.sock", "mine"))
changes = {
    "make a file": lambda: os.close(os.open(own, os.O_CREAT | os.O_WRONLY)),
    "make a directory": lambda: os.mkdir(own),
    "make a link": lambda: os.symlink("/etc/passwd", own),
    "make a second name": lambda: os.link(socket, own),
    "rename": lambda: os.rename(socket, own),
    "remove": lambda: os.unlink(socket),
    "set the mode": lambda: os.chmod(directory, 0o777),
}
for name, change in changes.items():
    try:
        change()
    except (PermissionError, FileNotFoundError):
        continue
    print(name)
"""


def test_the_owner_of_a_node(scene):
    """Nobody but root makes, renames or removes files where a node's sockets lie: the file system is root's memory, and root would
    have to remove millions of them."""
    program = saved_nodes.foreground(scene.agent, "restore", scene.id)
    saved_nodes.answers(program)
    inside = os.path.join(scene.agent.state, scene.node)
    try:
        for directory in ("", "control", "run", os.path.join("run", "devices"), os.path.join("run", "sockets")):
            done = subprocess.run(["python3", "-c", CHANGES, os.path.join(inside, directory)], user=USER, group=USER, extra_groups=[],
                                  capture_output=True, text=True, timeout=PATIENCE, check=True, cwd="/")
            assert not done.stdout, f"{directory}: {done.stdout}"
        # Connecting is all that it is for.
        virtualnode.Connection(os.path.join(inside, "run", "devices", "0.sock"), USER).socket.close()
        scene.agent.ok("checkpoint", "--continue", scene.node)
        saved_nodes.answers(program)
    finally:
        program.communicate(timeout=PATIENCE)
    scene.nothing_is_left()
    forget_others(scene)


KEPT = 128 << 10  # spank/agent/output/task_log.hpp: two files
PIPE = 64 << 10  # pipe(7)


def log_of_proxy(agent, node):
    """What is kept of it."""
    content = b""
    for name in ("proxy.0.log.old", "proxy.0.log"):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(agent.state, node, name), "rb") as file:
            content += file.read()
    return content


def test_the_log_of_a_proxy(scene):
    """The proxy is a process of its user, who can have it write anything: the newest is kept. With no agent there what does not fit
    into the pipe is lost, and nobody waits."""
    agent = scene.agent
    program = saved_nodes.foreground(agent, "restore", scene.id)
    saved_nodes.answers(program)
    (proxy,) = agent.proxies(scene.node)
    opens = ["python3", "-c", f"import os; os.open('/proc/{proxy}/fd/2', os.O_RDWR | os.O_NONBLOCK)"]
    assert b"PermissionError" in subprocess.run(opens, user=USER, group=USER, extra_groups=[], capture_output=True, timeout=PATIENCE,
                                                check=False).stderr
    # As its user can with pidfd_getfd(2).
    log = os.open(f"/proc/{proxy}/fd/2", os.O_WRONLY | os.O_NONBLOCK)

    def write(text):
        try:
            return os.write(log, text)
        except BlockingIOError:
            return 0
    try:
        assert b"serving" in log_of_proxy(agent, scene.node)
        line, written = b"x" * 4095 + b"\n", 0
        while written < 4 << 20:
            written += write(line)
            assert len(log_of_proxy(agent, scene.node)) <= KEPT
        virtualnode.wait_for(lambda: write(b"newest\n"), "room in the pipe")
        virtualnode.wait_for(lambda: log_of_proxy(agent, scene.node).endswith(b"newest\n"), "the newest line")
        assert len(log_of_proxy(agent, scene.node)) > KEPT // 4
        agent.kill()
        assert write(b"nobody is there\n")
        written = 0
        while (done := write(line)) != 0:
            written += done
        assert 0 < written <= PIPE
        with open(f"/proc/{proxy}/fdinfo/2", encoding="ascii") as file:
            flags = int(file.read().split("flags:")[1].split()[0], 8)
        # The proxy neither waits for a reader nor breaks without one.
        assert flags & os.O_NONBLOCK and flags & os.O_ACCMODE == os.O_RDWR
        agent.start()
        virtualnode.wait_for(lambda: b"nobody is there\n" in log_of_proxy(agent, scene.node), "the pipe to be emptied")
        virtualnode.wait_for(lambda: write(b"read again\n"), "room in the pipe")
        virtualnode.wait_for(lambda: log_of_proxy(agent, scene.node).endswith(b"read again\n"), "what is written from then on")
        saved_nodes.answers(program)
    finally:
        os.close(log)
        program.communicate(timeout=PATIENCE)
    scene.nothing_is_left()
