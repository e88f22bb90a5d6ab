# SPDX-License-Identifier: GPL-2.0-or-later
"""Checkpoints that somebody has changed who can write to the store: taken apart, changed, put together again."""

import collections
import os
import struct
import subprocess
import tempfile

import nodes
import saved_nodes
import virtualnode
from saved_nodes import PATIENCE, USER, built

PROGRAM = ["--devices", "1", "--backend", "software", "--", built("proxy", "singularity-probe"), "steady"]
EDITOR = nodes.program("store-editor")

# proxy/image/include/proxy/image/record.hpp
(STREAM, CLIENT, CODE, CODE_DATA, CALL, SLAB, PLACE, CONTENT, ACCESS, EVENT, BLOB, BLOB_DATA, COMMUNICATOR, CLIENT_END, END,
 OBJECT_NUMBER) = range(1, 17)
HUGE = 1 << 63

Record = collections.namedtuple("Record", "type payload")


def records_of(content):
    """What spank/worker/device_store.cpp has written: of content records only what is in front of the bytes."""
    found = []
    while content:
        kind, _, size = struct.unpack_from("=IIQ", content)
        size = 8 if kind == CONTENT else size
        found.append(Record(kind, content[16:16 + size]))
        content = content[16 + size:]
    return found


def bytes_of(records, sizes=()):
    """sizes: of content records, with their bytes, in order."""
    sizes = iter(sizes)
    return b"".join(struct.pack("=IIQ", one.type, 0, next(sizes) if one.type == CONTENT else len(one.payload)) + one.payload
                    for one in records)


def content_sizes(content):
    found = []
    while content:
        kind, _, size = struct.unpack_from("=IIQ", content)
        if kind == CONTENT:
            found.append(size)
        content = content[16 + (8 if kind == CONTENT else size):]
    return found


def put(payload, layout, at, *values):
    changed = bytearray(payload)
    struct.pack_into("=" + layout, changed, at, *values)
    return bytes(changed)


def first(records, kind):
    return next(number for number, one in enumerate(records) if one.type == kind)


def changed(kind, layout, at, *values):
    """The first record of that type with other numbers in it."""
    def change(records):
        number = first(records, kind)
        records[number] = Record(kind, put(records[number].payload, layout, at, *values))
        return records
    return change


class Checkpoint:
    """attributes: (node, device) -> name -> value; images: (node, device, name) -> content. All are bytes."""

    def __init__(self, attributes, images):
        self.attributes = attributes
        self.images = images

    def copy(self):
        return Checkpoint({address: dict(values) for address, values in self.attributes.items()}, dict(self.images))

    @staticmethod
    def of(store, uid, name):
        attributes, images = {}, {}
        with tempfile.TemporaryDirectory(dir="/tmp") as directory:
            done = subprocess.run([EDITOR, "export", store, str(uid), name, directory], capture_output=True, text=True, timeout=nodes.PATIENCE,
                                  check=False)
            assert done.returncode == 0, done.stderr
            for line in done.stdout.splitlines():
                what, *words = line.split(" ")
                node, device, key, value = (bytes.fromhex(word[1:]) for word in words)
                if what == "attribute":
                    attributes.setdefault((node, device), {})[key] = value
                else:
                    with open(value, "rb") as file:
                        images[node, device, key] = file.read()
        return Checkpoint(attributes, images)

    def write(self, store, uid, job, gid=None):
        """The id of the new checkpoint."""
        lines = []

        def say(what, *words):
            lines.append(" ".join([what, *("x" + word.hex() for word in words)]))
        with tempfile.TemporaryDirectory(dir="/tmp") as directory:
            for (node, device), values in self.attributes.items():
                for key, value in values.items():
                    say("attribute", node, device, key, value)
            for number, ((node, device, key), content) in enumerate(self.images.items()):
                path = os.path.join(directory, str(number))
                with open(path, "wb") as file:
                    file.write(content)
                say("image", node, device, key, path.encode())
            done = subprocess.run([EDITOR, "import", store, str(uid), str(uid if gid is None else gid), job], input="\n".join(lines) + "\n",
                                  capture_output=True, text=True, timeout=nodes.PATIENCE, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    # -- what is in it

    @property
    def node(self):
        return next(iter(self.attributes))[0]

    def change_records(self, change, device=b"0"):
        address = (self.node, device, b"records")
        records = self.images[address]
        self.images[address] = bytes_of(change(records_of(records)), content_sizes(records))

    def change_image(self, device, name, change):
        address = (self.node, device, name)
        self.images[address] = change(self.images[address])

    def rename(self, name):
        """Also in the record of the virtual node, which begins with its name."""
        was = self.node
        self.attributes = {(name, device): values for (_, device), values in self.attributes.items()}
        self.images = {(name, device, key): content for (_, device, key), content in self.images.items()}
        record = self.attributes[name, b""][b"record"]
        head = struct.pack("=I", len(was)) + was
        assert record[8:].startswith(head)
        self.attributes[name, b""][b"record"] = record[:8] + struct.pack("=I", len(name)) + name + record[8 + len(head):]


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
        self.good = Checkpoint.of(self.agent.store, USER, self.id)

    def restore(self, what, user=USER):
        return self.agent.ctl("restore", "--", what, user=user, stdin=subprocess.DEVNULL)

    def refuses(self, checkpoint, *words, job="changed", uid=USER, gid=None, by=USER):
        """What is said of it."""
        written = checkpoint.write(self.agent.store, uid, job, gid)
        try:
            return self.refuses_id(written, *words, by=by)
        finally:
            os.unlink(os.path.join(self.agent.store, "users", str(uid), "checkpoints", written))

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
