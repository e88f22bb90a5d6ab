# SPDX-License-Identifier: GPL-2.0-or-later
"""TCP connections that a program of a node has not accepted yet, when the node is saved: a client outside holds up nothing."""

import subprocess

import nodes
import pytest

NODE, CLIENT = "10.77.1.1", "10.77.1.2"
RESET = ("--others=reset",)
# Accepts when it is told to, says what it has been sent, and ends.
SERVER = """
import os, socket, sys, time
server = socket.create_server(("", 4000), family=socket.AF_INET6 if "{how}" == "both" else socket.AF_INET, dualstack_ipv6="{how}" == "both")
{first}
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
with server.accept()[0] as one:
    one.sendall(b"answer")
    print("heard", one.recv(100).decode(), flush=True)
"""
# Is connected and has sent a word before the server accepts; says what it hears.
ASKS = """
import socket
with socket.create_connection(("10.77.1.1", 4000), timeout=60) as one:
    one.sendall(b"word")
    print("connected", flush=True)
    try:
        print("heard", one.recv(100).decode(), flush=True)
    except OSError as error:
        print("lost", error.errno, flush=True)
"""


def serve(place, how="IPv4", first=""):
    node = place.start("python3", "-c", SERVER.format(how=how, first=first))
    place.wait_for_output("ready")
    return node


def within(pid, *argv):
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--", *argv]


@pytest.fixture(name="outside")
def make_outside():
    """A network namespace that is no node's."""
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "echo up; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        yield process.pid
        process.stdin.close()


def connect(node, outside):
    """The client, which waits for its server."""
    for words in (f"link add out type veth peer name out netns {outside}", f"addr add {NODE}/24 dev out", "link set out up"):
        subprocess.run(within(node.init, "ip", *words.split()), check=True)
    for words in (f"addr add {CLIENT}/24 dev out", "link set out up"):
        subprocess.run(within(outside, "ip", *words.split()), check=True)
    client = subprocess.Popen(within(outside, "python3", "-c", ASKS), stdout=subprocess.PIPE, text=True)
    assert client.stdout.readline() == "connected\n"
    return client


def go_on(place, node):
    with open(place.path("go"), "w", encoding="ascii"):
        pass
    assert node.wait() == 0
    return place.output()


@pytest.mark.parametrize("how", ["IPv4", "both"])
def test_a_client_outside_is_kept(place, outside, how):
    node = serve(place, how)
    client = connect(node, outside)
    with pytest.raises(nodes.Failed) as failure:  # where nothing resets it, it is not left out
        place.dump(node, after="run")
    assert "has not accepted a TCP connection yet" in str(failure.value)
    place.dump(node, after="run", options=RESET)
    place.dump(node, after="run", options=RESET)
    assert go_on(place, node) == "ready\nheard word\n"
    assert client.communicate(timeout=nodes.PATIENCE)[0] == "heard answer\n"


def test_a_restored_program_goes_on_listening(place, outside):
    node = serve(place)
    client = connect(node, outside)
    images, _ = place.dump(node, options=RESET)
    assert client.communicate(timeout=nodes.PATIENCE)[0] == "lost 104\n"  # by the end of the program that listened
    again = place.restore(images)
    with subprocess.Popen(within(again.init, "python3", "-c", ASKS.replace(NODE, "127.0.0.1")), stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout.readline() == "connected\n"
        assert go_on(place, again) == "ready\nheard word\n"
        assert second.stdout.readline() == "heard answer\n"


@pytest.mark.parametrize("how, address", [("IPv4", "127.0.0.1"), ("both", "127.0.0.1"), ("both", "::1")])
def test_a_client_in_the_node_must_be_accepted(place, how, address):
    """It would be restored, and wait for ever for what is not there."""
    node = serve(place, how, f"client = socket.create_connection(('{address}', 4000)); client.sendall(b'word')")
    with pytest.raises(nodes.Failed) as failure:
        place.dump(node, after="run", options=RESET)
    assert f"cannot save TCP port 4000: its program has not accepted a connection from {address} port" in str(failure.value)
    assert go_on(place, node) == "ready\nheard word\n"
