# SPDX-License-Identifier: GPL-2.0-or-later
"""Checkpoints, requests and files that were changed with intent: each is refused with its reason, the agent lives on, nothing is
left of what was begun, and the checkpoint that nobody has touched still restores."""

import array
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess

import hostile
import nodes
import pytest
import saved_nodes
import virtualnode
from hostile import (ACCESS, BLOB, CALL, CLIENT, CLIENT_END, CODE, CODE_DATA, CONTENT, EVENT, HUGE, PLACE, SLAB, STREAM, Record, changed, first,
                     put)
from saved_nodes import PATIENCE, USER, built
from virtualnode import ALICE, BOB, text

CHECKPOINT, RESTORE = 80, 81  # spank/agent/agent_messages.hpp
PROGRAM = ["--devices", "1", "--backend", "software", "--", built("proxy", "singularity-probe"), "steady"]


class Scene:
    """A program with a device, its checkpoint, and copies of that which were changed."""

    def __init__(self):
        self.agent = saved_nodes.Agent()
        program = saved_nodes.foreground(self.agent, "run", *PROGRAM)
        assert program.stdout.readline().split() == ["ready", "1"]
        saved_nodes.answers(program)
        self.node = next(iter(self.agent.nodes()))
        self.id = self.agent.ok("checkpoint", self.node)
        program.communicate(timeout=PATIENCE)
        self.good = hostile.Checkpoint.of(self.agent.store, USER, self.id)

    def restore(self, what, user=USER):
        return self.agent.ctl("restore", "--", what, user=user, stdin=subprocess.DEVNULL)

    def refuses(self, checkpoint, *words, job="changed", uid=USER, gid=None, by=USER):
        """What is said of it."""
        written = checkpoint.write(self.agent.store, uid, job, gid)
        try:
            return self.refuses_id(written, *words, by=by)
        finally:
            shutil.os.unlink(os.path.join(self.agent.store, "users", str(uid), "checkpoints", written))

    def refuses_id(self, what, *words, by=USER):
        done = self.restore(what, by)
        said = [line for line in done.stderr.splitlines() if line.startswith("singularityctl: cannot")]
        assert done.returncode == 1 and len(said) == 1, f"{done}\n{self.agent.log()}"
        for word in words:
            assert word in said[0], said[0]
        self.nothing_is_left()
        return said[0]

    def nothing_is_left(self):
        assert self.agent.process.poll() is None, self.agent.log()
        virtualnode.wait_for(lambda: not self.agent.leftovers() and not self.agent.workers(), f"nothing to be left: {self.agent.leftovers()}")

    def still_restores(self):
        program = saved_nodes.foreground(self.agent, "restore", self.id)
        saved_nodes.answers(program)
        program.communicate(timeout=PATIENCE)
        assert program.returncode == 0
        self.nothing_is_left()

    def close(self):
        self.agent.close()


@pytest.fixture(scope="module", name="scene")
def one_scene(_mounts):
    one = Scene()
    try:
        yield one
        one.still_restores()
        one.agent.store_is_whole()
    finally:
        one.close()


# --- Device images


def cut(kind, size):
    def change(records):
        number = first(records, kind)
        records[number] = Record(kind, records[number].payload[:size])
        return records
    return change


def before_end(*records_to_add):
    def change(records):
        number = first(records, CLIENT_END)
        return records[:number] + list(records_to_add) + records[number:]
    return change


def without(kind):
    return lambda records: [one for one in records if one.type != kind]


def twice(records):
    """The same client in the same window."""
    return records + records


def call(message, context=0, names=(), flags=0):
    head = struct.pack("=QQQIIQ", context, 0, 0, flags, len(names), len(message))
    return Record(CALL, head + struct.pack(f"={len(names)}Q", *names) + message)


def message(number, body=b"", kind=1):
    return struct.pack("=IIQ", number, kind, 16 + len(body)) + body


def every_handle(records):
    """Handles of the session in all messages become such as no session has given."""
    out = []
    for one in records:
        if one.type == CALL:
            names, size = struct.unpack_from("=IQ", one.payload, 28)
            at = 40 + 8 * names + 16
            one = Record(CALL, one.payload[:at] + b"\x77" * (size - 16))
        out.append(one)
    return out


def other_context(records):
    return [Record(CALL, put(one.payload, "Q", 0, 0x0C00_0000_0000 | 1 << 36 | 0x999 << 4)) if one.type == CALL else one for one in records]


# Of a client record: proxy/image/include/proxy/image/record.hpp.
ORDINAL, WINDOW, WINDOW_SIZE, GEOMETRY, NOTED, DEVICE, MAJOR, NAME = 16, 24, 32, 40, 68, 72, 76, 96
STREAMS = {
    # record sizes
    "a client that is too short": (cut(CLIENT, 10), "(client)", "it has 10 bytes"),
    "a call that is too short": (cut(CALL, 10), "(call)", "it has 10 bytes"),
    "an end that is too long": (lambda records: [*records[:-1], Record(CLIENT_END, bytes(64))], "(client_end)", "it has 64 bytes"),
    "a record of no bytes": (cut(SLAB, 0), "(slab)", "it has 0 bytes"),
    # the client
    "a window that is none": (changed(CLIENT, "Q", WINDOW, 0x1000), "(client)", "window 0x1000"),
    "a window at the end of everything": (changed(CLIENT, "Q", WINDOW, (1 << 64) - 4096), "(client)", "window"),
    "a window of 2^63 bytes": (changed(CLIENT, "Q", WINDOW_SIZE, HUGE), "(client)", "its window has 0x8000000000000000 bytes"),
    "a ring of 4 GiB": (changed(CLIENT, "I", GEOMETRY, 0xFFFFFFFF), "(client)", "ring_size"),
    "pieces of 4 GiB": (changed(CLIENT, "I", GEOMETRY + 20, 0xFFFFF000), "(client)", "piece_size"),
    "another device": (changed(CLIENT, "i", MAJOR, -1), "(client)", "it was saved on a"),
    "a failure that no driver has": (changed(CLIENT, "i", NOTED, 0x5500), "(client)", "its failure 21760 is none"),
    "a device whose name has no end": (changed(CLIENT, "256s", NAME, b"A" * 256), "(client)", "it was saved on a"),
    "an ordinal of no device": (changed(CLIENT, "i", DEVICE, -5), "(client)", "device -5"),
    "a client of another device": (changed(CLIENT, "Q", ORDINAL, 1 << 40), "a client of device 1099511627776"),
    # calls
    "a message that nobody knows": (before_end(call(message(0xFFFFFF))), "(call)", "message 0xffffff", "no call that makes anything"),
    "a call that makes nothing": (before_end(call(message(0x10002))), "(call)", "cannot repeat"),
    "handles of nobody": (every_handle, "(call)"),
    "a context of another session": (other_context, "(call)"),
    "names that are not there": (changed(CALL, "I", 28, 0xFFFFFFFF), "(call)", "not as long as it says"),
    "a message of 2^63 bytes": (changed(CALL, "Q", 32, HUGE), "(call)", "not as long as it says"),
    "code that did not come": (without(CODE), "(code_data)", "no place"),
    "calls without their code": (lambda records: without(CODE_DATA)(without(CODE)(records)), "(call)", "did not come before it"),
    "code of 2^63 bytes": (changed(CODE, "Q", 16, HUGE), "(code)", "is not possible"),
    "code of another content": (changed(CODE, "Q", 0, 5), "(code)", "not the one it names"),
    "code with a gap": (without(CODE_DATA), "a code_data was expected here"),
    # memory
    "a slab of 2^63 bytes": (changed(SLAB, "Q", 8, HUGE), "(slab)"),
    "a slab of no bytes": (changed(SLAB, "Q", 8, 0), "(slab)", "is no slab"),
    "a slab outside of the window": (changed(SLAB, "Q", 0, 0), "(slab)"),
    "a slab twice": (lambda records: records[:first(records, SLAB)] + [records[first(records, SLAB)]] + records[first(records, SLAB):], "(slab)"),
    "a place that wraps around": (changed(PLACE, "QQ", 24, (1 << 64) - 4096, 8192), "(place)", "no such place"),
    "a place outside of slabs": (changed(PLACE, "Q", 24, 0x1000), "(place)", "neither in a slab nor a mapping"),
    "a place of 2^63 bytes": (changed(PLACE, "Q", 32, HUGE), "(place)"),
    "a name of 2^63 bytes": (changed(PLACE, "Q", 40, HUGE), "(place)", "its name is not what it says"),
    "a place of no kind": (changed(PLACE, "I", 0, 9), "(place)", "no such place"),
    "a variable of no module": (changed(PLACE, "I", 0, 2), "(place)", "no module and no library"),
    "an allocation of nobody": (changed(PLACE, "I", 0, 3), "(place)", "no allocation"),
    "content at 2^63": (changed(CONTENT, "Q", 0, HUGE), "(content)", "outside of the last place"),
    "content without a place": (without(PLACE), "(content)", "outside of the last place"),
    # the rest
    "access to no mapping": (before_end(Record(ACCESS, struct.pack("=QQQ", 0, HUGE, 3))), "(access)", "no mapping"),
    "an event of nobody": (before_end(Record(EVENT, struct.pack("=QQ", 0x7777, 0))), "(event)", "is no event"),
    "a blob of 2^63 bytes": (before_end(Record(BLOB, struct.pack("=QQQ", 1, HUGE, 0))), "(blob)", "is not possible"),
    "a blob that holds more than it has": (before_end(Record(BLOB, struct.pack("=QQQ", 1, 8, 16))), "(blob)", "is not possible"),
    "a record of no type": (before_end(Record(99, b"x" * 100)), "(unknown)", "no place inside"),
    "a stream in the stream": (before_end(Record(STREAM, b"x" * 16)), "(stream)", "no place inside"),
    "counts that are wrong": (changed(CLIENT_END, "Q", 0, HUGE), "(client_end)", "counts other records"),
    "no end": (lambda records: records[:-1], "(end)", "no place inside"),
    "nothing behind the client": (lambda records: records[:1], "(end)", "no place inside"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_device_stream(scene, name):
    change, *words = STREAMS[name]
    checkpoint = scene.good.copy()
    checkpoint.change_records(change)
    print(scene.refuses(checkpoint, *words))


def head_says(size):
    return lambda records: put(records, "Q", 8, size)


IMAGES = {
    "records that are no records": (b"records", lambda content: b"\xff" * 4096, "a record of 18446744073709551615 bytes"),
    "a record of 2^63 bytes": (b"records", head_says(HUGE), "a record of 9223372036854775808 bytes"),
    "a record that is longer than all": (b"records", head_says(1 << 20), "it ends inside of a record"),
    "a head that is cut off": (b"records", lambda content: content[:-1] + b"", "it ends inside of a record"),
    "half a head": (b"records", lambda content: content + b"\0" * 7, "it ends inside of a record"),
    "no records": (b"records", lambda content: b"", "(end)", "a client was expected here"),
    "no content": (b"content", lambda content: b"", "it is shorter than its records say"),
}


@pytest.mark.parametrize("name", IMAGES)
def test_device_image(scene, name):
    image, change, *words = IMAGES[name]
    checkpoint = scene.good.copy()
    checkpoint.change_image(b"0", image, change)
    print(scene.refuses(checkpoint, *words))


CLIENTS = {b"0": "a end was expected", b"2": "a client was expected", b"4294967295": "clients are too many", b"4294967296": "does not say how many",
           b"x": "does not say how many", b"": "does not say how many", b"-1": "does not say how many"}


@pytest.mark.parametrize("count", CLIENTS)
def test_count_of_clients(scene, count):
    checkpoint = scene.good.copy()
    checkpoint.attributes[scene.good.node, b"0"][b"clients"] = count
    print(scene.refuses(checkpoint, CLIENTS[count]))


def test_a_client_twice(scene):
    checkpoint = scene.good.copy()
    checkpoint.change_image(b"0", b"records", lambda content: content + content)
    checkpoint.change_image(b"0", b"content", lambda content: content + content)
    checkpoint.attributes[scene.good.node, b"0"][b"clients"] = b"2"
    print(scene.refuses(checkpoint, "(client)", "in the image already"))


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


# --- Host images through the agent


def core_of(checkpoint):
    return min(name for node, device, name in checkpoint.images if name.startswith(b"core-") and not device)


@contextlib.contextmanager
def watched_criu(directory):
    """Says in a file whenever criu is started."""
    real, wrapper, seen = (os.path.join(directory, name) for name in ("criu", "wrapper", "seen"))
    shutil.copy2("/usr/sbin/criu", real)
    with open(wrapper, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\necho started >> {seen}\nexec {real} \"$@\"\n")
    os.chmod(wrapper, 0o755)
    subprocess.run(["mount", "--bind", wrapper, "/usr/sbin/criu"], check=True)
    try:
        yield lambda: os.path.exists(seen)
    finally:
        subprocess.run(["umount", "-l", "/usr/sbin/criu"], check=True)


@pytest.mark.parametrize("field, value, says", [(1, b"\x80\x00", "has uid 0, not 1001"), (3, b"\x80\x00", "has euid 0, not 1001"),
                                                (8, b"\x80\x00", "has fsgid 0, not 1001"), (1, b"\xea\x07", "has uid 1002, not 1001")])
def test_ids_in_the_host_image(scene, tmp_path, field, value, says):
    checkpoint = scene.good.copy()
    checkpoint.change_image(b"", core_of(checkpoint), nodes.with_ids(field, value))
    with watched_criu(str(tmp_path)) as criu_ran:
        # The agent's mounts are those of this process.
        scene.agent.mounts, before = scene.agent.own_mounts(), scene.agent.mounts
        try:
            print(scene.refuses(checkpoint, says))
        finally:
            scene.agent.mounts = before
        assert not criu_ran()


@pytest.mark.parametrize("name", [b"../x", b"a/b", b"", b".", b"..", b".hidden", b"x" * 300, b"a\nb", b"/etc/x", b"a\0b"])
def test_name_of_a_host_image(scene, name):
    checkpoint = scene.good.copy()
    checkpoint.images[checkpoint.node, b"", name] = b"content"
    said = scene.refuses(checkpoint, "no name of an image file")
    print(said)
    assert said.isprintable()


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
LOAD = request(RESTORE, text("x") + b"\0\0\0\0")


@pytest.mark.parametrize("packet", [
    *[good[:size] for good in (SAVE, LOAD) for size in (1, 4, 7, 8, 11, len(good) - 1)], SAVE + b"\0", LOAD + b"\0", SAVE[:-1] + b"\2",
    request(RESTORE, struct.pack("=I", 0xFFFFFFFF) + b"x" * 8), request(RESTORE, text("a\0b") + b"\0\0\0\0"),
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
        connection.socket.send(request(RESTORE, text("x" * (600 << 10)) + b"\0\0\0\0"))
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
        asked = [connection.send(RESTORE, text("nothing") + b"\0\0\0\0") for _ in range(200)]
        refusals = []
        for token in asked:
            most = max(most, len(scene.agent.workers()))
            with pytest.raises(virtualnode.Refused) as refused:
                while connection.answer(token)[0] == 82:  # progress
                    pass
            refusals.append(str(refused.value))
        assert any("at a time" in one for one in refusals), refusals[0]
        assert most <= 20, most
        # Somebody else has his own share.
        with pytest.raises(virtualnode.Refused, match="cannot find a checkpoint"):
            token = other.send(RESTORE, text("nothing") + b"\0\0\0\0")
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
    users = os.path.join(agent.store, "users", str(USER), "checkpoints")
    for name in os.listdir(users):
        if name != scene.id:
            os.unlink(os.path.join(users, name))


# --- What the program itself can do to what the agent's helpers look at


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


@pytest.mark.parametrize("how", ["checkpoint", "continue"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_in_place_of_a_device(agent, name, how):
    """The agent's helpers neither wait nor follow; the program is told, or saved; it is never lost."""
    script = f"mv {DEVICES}/0.sock {DEVICES}/kept; {IN_PLACE[name]}; echo ready; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); sleep 0.05; done"
    node = agent.run(["/bin/sh", "-c", script], 1)
    virtualnode.wait_for(lambda: b"ready" in agent.output(node), "the program", PATIENCE)
    done = agent.ctl("checkpoint", *(["--continue"] if how == "continue" else []), node, user=USER)
    print(done.stderr)
    assert done.returncode == 1 and "0.sock" in done.stderr, done
    virtualnode.wait_for(lambda: agent.nodes()[node][0] == "running", "it to run on", PATIENCE)
    assert "running" in agent.task(node)
    assert not agent.checkpoints()
    agent.ok("destroy", node)
    assert not agent.leftovers()


def test_more_names_than_devices(agent):
    """Files of the names that helpers use, where the program may write."""
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
    assert done.returncode == (1 if swap else 0) and ("on its way" in done.stderr) == swap, done
    virtualnode.wait_for(lambda: not agent.leftovers(), "nothing to be left")
