# SPDX-License-Identifier: GPL-2.0-or-later
"""Images of devices and of processes that were changed with intent: each is refused with its reason, the agent lives on, nothing
is left of what was begun, and the checkpoint that nobody has touched still restores."""

import contextlib
import os
import shutil
import struct
import subprocess

import nodes
import pytest
from hostile import (ACCESS, BLOB, CALL, CLIENT, CLIENT_END, CODE, CODE_DATA, COMMUNICATOR, CONTENT, EVENT, HUGE, OBJECT_NUMBER, PLACE, SLAB, STREAM,
                     Record, changed, first, put)


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
ORDINAL, WINDOW, WINDOW_SIZE, GEOMETRY, NOTED, DEVICE, MAJOR, NODE_DEVICE, NAME = 16, 24, 32, 40, 68, 72, 76, 88, 104
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
    "a device that its process has not": (changed(CLIENT, "Q", ORDINAL, 1 << 40), "(client)", "it is of device 1099511627776 of"),
    "a client of another device": (changed(CLIENT, "I", NODE_DEVICE, 7), "a client of device 7"),
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
    "exported allocations that are not there": (changed(SLAB, "Q", 48, HUGE), "(slab)", "not as many as it says"),
    "an exported allocation of a slab that is not shared": (
        lambda records: [Record(SLAB, one.payload[:48] + struct.pack("=QQQQ", 1, 0, 1, 1)) if one.type == SLAB else one for one in records],
        "(slab)", "does not lie in a shared slab"),
    "an exported allocation outside of its slab": (
        lambda records: [Record(SLAB, one.payload[:24] + struct.pack("=QQQQQQQ", 5, 6, 1, 1, 0, HUGE, 1)) if one.type == SLAB else one
                         for one in records], "(slab)", "does not lie in a shared slab"),
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
    "an event of nobody": (before_end(Record(EVENT, struct.pack("=QQdQ", 0x7777, 0, 0.0, 0))), "(event)", "is no event"),
    "a number of an object that has none": (before_end(Record(OBJECT_NUMBER, struct.pack("=QQ", 0x7777, 1))), "is no texture and no surface"),
    "a blob of 2^63 bytes": (before_end(Record(BLOB, struct.pack("=QQQ", 1, HUGE, 0))), "(blob)", "is not possible"),
    "a blob that holds more than it has": (before_end(Record(BLOB, struct.pack("=QQQ", 1, 8, 16))), "(blob)", "is not possible"),
    "a communicator without a rank": (before_end(Record(COMMUNICATOR, struct.pack("=QQQQIIQ", 1, 0, 1, 1, 2, 2, 0))), "(communicator)"),
    "a communicator in no context": (before_end(Record(COMMUNICATOR, struct.pack("=QQQQIIQ", 1, 0x7777, 1, 1, 0, 2, 0))), "(communicator)"),
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
