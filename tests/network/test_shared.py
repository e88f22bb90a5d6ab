# SPDX-License-Identifier: GPL-2.0-or-later
"""Several owners, such as the script of a job and its steps, have one network, and at one number one network namespace."""

import os
import subprocess

import pytest
from wiring import EVERYTHING, Namespace, Network, inner, run, start
from virtualnode import Refused, wait_for  # after wiring, which says where it is

VNI = 0x4201
# Takes connections at a port, says so, and then what becomes of each.
TAKES = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    print("up", flush=True)
    peer, _ = server.accept()
    print("taken", flush=True)
    try:
        print(len(peer.recv(1)), flush=True)
    except ConnectionResetError:
        print("reset", flush=True)
"""
CONNECTS = """
import socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("up", flush=True)
try:
    print(len(peer.recv(1)), flush=True)
except ConnectionResetError:
    print("reset", flush=True)
except ConnectionAbortedError:
    print("aborted", flush=True)
"""


class Shares(Namespace):
    """A node of an owner's: its processes have a PID namespace of their own, and a network namespace that is not."""

    def __init__(self, number, home):
        self.number = number
        self.process = subprocess.Popen(["nsenter", f"--net=/proc/self/fd/{home}", "--", "unshare", "--pid", "--fork", "--kill-child", "sh", "-c",
                                         "echo up; read -r line; exec sleep infinity >/dev/null"], pass_fds=[home], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"up\n"
        children = open(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read().split()
        [self.pid] = [int(one) for one in children]

    def python(self, script, *arguments):
        """In its namespaces; what it prints."""
        return subprocess.Popen(["nsenter", f"--net=/proc/{self.pid}/ns/net", f"--pid=/proc/{self.pid}/ns/pid", "--", "setpriv", "--pdeathsig", "KILL", "python3", "-c", script, *arguments], text=True,
                                stdout=subprocess.PIPE)

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def host(world):
    return world[0]


@pytest.fixture
def other(world):
    return world[2]


@pytest.fixture
def network(wiring, host):
    made = wiring.keep(Network(host, VNI, wiring.directory))
    for _ in ("one", "two"):
        made.prepare([], outside=EVERYTHING, way_in=True, shared=True)
        made.connect(1500)
    return made


@pytest.fixture
def nodes(wiring, network):
    """Of the owners one and two, at number 1."""
    out = {}
    for owner in ("one", "two"):
        home = network.place(1)
        out[owner] = wiring.keep(Shares(1, home))
        os.close(home)
        network.attach(out[owner], owner)
    return out


def test_they_have_one_address_and_one_loopback(nodes):
    for at in ("127.0.0.1", inner(VNI, 1)):
        server = nodes["one"].python(TAKES, "7000")
        assert server.stdout.readline() == "up\n"
        client = nodes["two"].python(CONNECTS, at, "7000")
        assert client.stdout.readline() == "up\n"
        client.kill()
        client.wait()
        assert server.communicate()[0] == "taken\n0\n"


def test_it_is_there_until_somebody_ends_it(wiring, network, nodes):
    for owner in ("one", "two"):
        nodes[owner].close()
    home = network.place(1)
    again = wiring.keep(Shares(1, home))
    os.close(home)
    network.attach(again, "three")
    assert network.status() == (True, True, False, [1])


def test_it_is_open_when_all_who_have_cut_it_say_so(network, nodes):
    network.cut("one")
    network.cut("two")
    network.open("one")
    assert network.status()[2]
    network.open("two")
    assert not network.status()[2]
    network.cut("one")
    nodes["one"].close()
    wait_for(lambda: not network.status()[2], "who has ended to have opened it")


def test_only_the_connections_of_who_leaves_end(other, network, nodes):
    servers, clients = {}, {}
    for owner, port in (("one", "7001"), ("two", "7002")):
        servers[owner] = start("python3", "-c", TAKES, port, pid=other.pid, stdout=-1)
        assert servers[owner].stdout.readline() == "up\n"
        clients[owner] = nodes[owner].python(CONNECTS, other.address, port)
        assert clients[owner].stdout.readline() == "up\n"
        assert servers[owner].stdout.readline() == "taken\n"
    network.cut("one")
    network.release("one")
    assert servers["one"].stdout.readline() == "reset\n"
    assert clients["one"].stdout.readline() == "aborted\n"
    network.open("one")
    clients["two"].kill()
    clients["two"].wait()
    assert servers["two"].stdout.readline() == "0\n", "it was closed, and not reset"
    for server in servers.values():
        server.wait()


@pytest.mark.parametrize("number, address", [(1, "10.66.1.2"), (0, None), (254, None)])
def test_addresses_of_others_are_refused(network, number, address):
    with pytest.raises(Refused):
        network.place(number, address)


def test_a_node_that_is_not_at_the_place_is_refused(wiring, network, nodes):
    stranger = wiring.keep(Namespace())
    stranger.number = 1
    with pytest.raises(Refused, match="not at its place"):
        network.attach(stranger, "three")


def test_one_that_is_not_shared_has_no_places(wiring, host):
    network = wiring.keep(Network(host, VNI, wiring.directory))
    network.prepare([])
    with pytest.raises(Refused):
        network.prepare([], shared=True)
    network.connect(1500)
    with pytest.raises(Refused):
        network.place(1)


def test_one_of_several_hosts_is_not_shared(wiring, host, other):
    network = wiring.keep(Network(host, VNI, wiring.directory))
    with pytest.raises(Refused, match="one host"):
        network.prepare([other], shared=True)


def test_ports_are_published_for_each_owner(host, other, network, nodes):
    ports = {owner: network.publish(nodes[owner], 7000, owner=owner)[7000] for owner in ("one", "two")}
    assert len(set(ports.values())) == 2
    nodes["one"].close()
    network.status()
    server = nodes["two"].python(TAKES, "7000")
    assert server.stdout.readline() == "up\n"
    client = start("python3", "-c", CONNECTS, host.address, str(ports["two"]), pid=other.pid, stdout=-1)
    assert client.stdout.readline() == "up\n"
    client.kill()
    client.wait()
    assert server.communicate()[0] == "taken\n0\n"
    refused = run("python3", "-c", CONNECTS, host.address, str(ports["one"]), pid=other.pid, check=False)
    assert "Connection refused" in refused.stderr
