# SPDX-License-Identifier: GPL-2.0-or-later
"""Whoever listens on the network between two hosts learns nothing of what their agents say to each other after the handshake."""

import os
import secrets
import socket
import struct
import sys

import pytest
from peering import PORT

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ranks"))
from rankhosts import RankHosts  # noqa: E402

ALL = 3  # ETH_P_ALL of if_ether.h
IPV4, TCP = 0x0800, 6
FORCED_BUFFER = 33  # SO_RCVBUFFORCE
PACKET, STATISTICS = 263, 6  # SOL_PACKET, PACKET_STATISTICS


class Capture:
    """What goes over an interface of a host, from now on."""

    def __init__(self, pid, interface="eth0"):
        with open("/proc/thread-self/ns/net", "rb") as own, open(f"/proc/{pid}/ns/net", "rb") as there:
            os.setns(there.fileno(), os.CLONE_NEWNET)
            try:
                self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            finally:
                os.setns(own.fileno(), os.CLONE_NEWNET)
        self.socket.setsockopt(socket.SOL_SOCKET, FORCED_BUFFER, 128 << 20)
        self.socket.bind((interface, ALL))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def streams(self, port):
        """{(from port, to port): bytes} of TCP connections to the port, so far."""
        packets = []
        while True:
            try:
                packets.append(self.socket.recv(1 << 20, socket.MSG_DONTWAIT))
            except BlockingIOError:
                break
        dropped = struct.unpack("II", self.socket.getsockopt(PACKET, STATISTICS, 8))[1]
        assert dropped == 0, f"{dropped} packets were not captured"
        out = {}
        for packet in packets:
            ip = packet[14:]
            if struct.unpack_from(">H", packet, 12)[0] != IPV4 or ip[9] != TCP:
                continue
            tcp = ip[(ip[0] & 0xf) * 4:struct.unpack_from(">H", ip, 2)[0]]
            ports = struct.unpack_from(">HH", tcp)
            if port in ports:
                out[ports] = out.get(ports, b"") + tcp[(tcp[12] >> 4) * 4:]
        return out


def frames(said):
    """The frames of one direction: a length in four bytes, and what it is the length of."""
    out = []
    while said:
        (length,) = struct.unpack_from(">I", said)
        out.append(said[4:4 + length])
        said = said[4 + length:]
    return out


@pytest.fixture(name="hosts")
def two_hosts():
    hosts = RankHosts(2)
    yield hosts
    hosts.close()


def test_what_agents_say_is_not_seen_on_the_wire(hosts):
    secret = secrets.token_hex(16)
    back = secret[::-1]  # what the rank on the other host writes
    with Capture(hosts.host("n1").pid()) as wire:
        done = hosts.run("n1", "n2", "python3", "-c", "import os; print(os.environ['SECRET'][::-1])", env={"SECRET": secret})
        assert (done.returncode, done.stdout.strip()) == (0, back), done.stderr
        streams = wire.streams(PORT)
    # Their handshake is: so it is them who were listened to.
    to, fro = (b"".join(said for ports, said in streams.items() if ports[end] == PORT) for end in (1, 0))
    for said in (to, fro):
        assert b"MUNGE:" in said and b"n1" in said and b"n2" in said
        hello, proof, *rest = frames(said)
        assert b"n1" in hello and b"MUNGE:" in proof
        assert len(rest) > 1 and all(len(frame) > 16 for frame in rest)  # a job was begun, and told of
        for word in (secret, back, "SECRET", "python3", "u1001-j"):
            assert word.encode() not in said
