# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes of a job reach each other wherever they run, and nobody else; nothing of it is seen on the hosts or outlives the job."""

import contextlib
import errno
import signal
import socket
import struct
import subprocess

import pytest
from wiring import CONNECT, PORT, Network, Node, inner, run
from virtualnode import PATIENCE, Refused, wait_for  # after wiring, which says where it is

ALICE = 1001
SERVER = "import socket; s = socket.create_server(('', 4000)); print('up', flush=True); c, _ = s.accept(); "
COUNT = SERVER + "n = 0\nwhile d := c.recv(65536): n += len(d)\nprint(n)"
ECHO = SERVER + "\nwhile d := c.recv(65536): c.sendall(d)"
CONNECTS = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])); print('connected')"


def serve(node, script):
    server = node.python(script)
    assert server.stdout.readline() == "up\n"
    return server


def reaches(node, address, port=4000, seconds=1):
    """Whether a TCP connection can be made. Who is not reached within the time is not: the packets have nowhere to wait."""
    said = run("python3", "-c", CONNECTS, address, str(port), str(seconds), pid=node.pid, check=False)
    return said.stdout == "connected\n"


def send_much(node, address, count):
    script = f"import socket; s = socket.create_connection(('{address}', 4000)); s.sendall(bytes({count}))"
    run("python3", "-c", script, pid=node.pid)


def end(process):
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("placement", [{1: 1, 2: 2}, {1: 1, 2: 1}, {1: 1, 2: 2, 3: 3, 4: 1}])
def test_nodes_reach_each_other(wiring, placement):
    hosts = {number: wiring.host(number) for number in set(placement.values())}
    nodes, _ = wiring.job(4711, {node: hosts[host] for node, host in placement.items()})
    for to in nodes.values():
        for other in nodes.values():
            if to is other:
                continue
            server = serve(to, COUNT)
            send_much(other, to.address, 3 << 20)  # in full packets: the MTU is right
            assert server.communicate(timeout=PATIENCE)[0] == f"{3 << 20}\n"


def test_packets_have_room_for_what_vxlan_puts_around_them(wiring):
    one, two = wiring.host(1, mtu=1400), wiring.host(2, mtu=9000)
    nodes, networks = wiring.job(5, {1: one, 2: two})
    for node in nodes.values():
        assert "mtu 1350" in node.ip("link", "show", "eth0")
    with pytest.raises(Refused):
        wiring.keep(Network(one, 6, wiring.directory)).connect(1351)
    other = wiring.keep(Network(one, 7, wiring.directory))
    assert other.prepare([two]) == 1350
    with pytest.raises(Refused) as refused:
        other.connect(1351)
    assert refused.value.code == errno.EINVAL
    assert len(networks) == 2


def test_two_jobs_do_not_see_each_other(wiring):
    one, two = wiring.host(1), wiring.host(2)
    # Of the same addresses, as chance may have it.
    first, second = 77, 77 + (1 << 14)
    assert inner(first, 1) == inner(second, 1)
    ours, _ = wiring.job(first, {1: one, 2: two})
    theirs, _ = wiring.job(second, {1: one, 3: two})
    server = serve(ours[1], COUNT)
    assert not reaches(theirs[3], ours[1].address)
    assert not reaches(theirs[1], ours[2].address)
    assert reaches(ours[2], ours[1].address)
    assert server.wait(PATIENCE) == 0
    end(server)


def test_a_job_reaches_no_host_and_no_host_reaches_it(wiring):
    one, two = wiring.host(1), wiring.host(2)
    nodes, _ = wiring.job(9, {1: one, 2: two})
    for host in (one, two):
        listening = subprocess.Popen(["nsenter", f"--net=/proc/{host.pid}/ns/net", "python3", "-c", SERVER], stdout=subprocess.PIPE, text=True)
        assert listening.stdout.readline() == "up\n"
        assert not reaches(nodes[1], host.address)
        # Not even with a route that nobody but root could set.
        nodes[1].ip("route", "add", "10.77.0.0/24", "dev", "eth0")
        assert not reaches(nodes[1], host.address)
        nodes[1].ip("route", "del", "10.77.0.0/24", "dev", "eth0")
        end(listening)
    server = serve(nodes[2], COUNT)
    for host in (one, two):
        assert not reaches(host, nodes[2].address)
    end(server)


def test_nothing_is_seen_on_the_host(wiring):
    one, two = wiring.host(1), wiring.host(2)
    before = one.ip("-br", "link")
    wiring.job(9, {1: one, 2: two, 3: one})
    assert one.ip("-br", "link") == before


def vxlan(vni, mac, payload):
    """A VXLAN packet with a UDP datagram to port 4001 of node 1 (RFC 7348)."""
    source, to = socket.inet_aton(inner(vni, 2)), socket.inet_aton(inner(vni, 1))
    udp = struct.pack(">HHHH", 4002, 4001, 8 + len(payload), 0) + payload
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, source, to)
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xffff) + (total >> 16)
    head = head[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xffff) + head[12:]
    return struct.pack(">BxxxI", 8, vni << 8) + mac + b"\x02SSSSS" + b"\x08\x00" + head + udp


LISTEN = ("import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 4001)); print('up', flush=True)\n"
          "while d := s.recv(100): print(d.decode(), flush=True)")
INJECT = ("import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM)\n"
          "s.sendto(bytes.fromhex(sys.argv[3]), (sys.argv[1], int(sys.argv[2])))")


def test_nobody_writes_into_a_network(wiring):
    one, two, stranger = wiring.host(1), wiring.host(2), wiring.host(3)
    vni = 0x123456
    nodes, _ = wiring.job(vni, {1: one, 2: two})
    mac = bytes([2, 0x53, 0x12, 0x34, 0x56, 1])
    listener = serve(nodes[1], LISTEN)

    def inject(host, text, user=None, to=one.address):
        return run("python3", "-c", INJECT, to, str(PORT), vxlan(vni, mac, text).hex(), pid=host.pid, user=user, check=False)

    # A user of a host of the job, to another host and to his own; root of a host that is not the job's.
    for host, to in ((two, one.address), (one, one.address), (one, "127.0.0.1")):
        refused = inject(host, b"user", ALICE, to)
        assert "Operation not permitted" in refused.stderr, refused
    assert inject(stranger, b"stranger").returncode == 0
    # What arrives in the end has been sent by a host of the job: the packets before were not just wrong.
    assert inject(two, b"kernel").returncode == 0
    assert listener.stdout.readline() == "kernel\n"
    end(listener)
    # Other ports are nobody's business.
    assert run("python3", "-c", INJECT, one.address, "4001", "00", pid=two.pid, user=ALICE, check=False).returncode == 0


STREAM = """
import socket, struct, sys
s = socket.create_connection((sys.argv[1], 4000))
print('up', flush=True)
n = 0
while True:
    s.sendall(struct.pack('>I', n) * 256)
    n += 1
"""
CHECK = """
import socket, struct, sys
s = socket.create_server(('', 4000))
print('up', flush=True)
c, _ = s.accept()
n, held = 0, b''
while True:
    held += c.recv(65536)
    while len(held) >= 1024:
        assert held[:1024] == struct.pack('>I', n) * 256, (n, held[:8])
        held = held[1024:]
        n += 1
        if n % 64 == 0:
            with open(sys.argv[1], 'w') as file:
                file.write(str(n))
"""


@pytest.mark.parametrize("together", [False, True])
def test_a_connection_lives_through_a_cut(wiring, tmp_path, together):
    one = wiring.host(1)
    two = one if together else wiring.host(2)
    nodes, networks = wiring.job(21, {1: one, 2: two})
    progress = tmp_path / "progress"
    receiver = nodes[1].python(CHECK, str(progress))
    assert receiver.stdout.readline() == "up\n"
    sender = nodes[2].python(STREAM, nodes[1].address)
    assert sender.stdout.readline() == "up\n"

    def seen():
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int(progress.read_text())
        return 0

    def received(node):
        """Packets that have come to the node's interface, as its kernel counts them."""
        return int(node.ip("-s", "link", "show", "eth0").split("RX:")[1].splitlines()[1].split()[1])

    for _ in range(3):
        before = seen()
        wait_for(lambda b=before: seen() > b, "the stream to flow")
        for network in networks.values():
            network.cut()
            assert network.status()[2]
        # What was on its way has arrived; TCP's repeated attempts do not.
        counts = [received(node) for node in nodes.values()]
        for node in nodes.values():
            assert not reaches(node, inner(21, 3 - node.number), 4000)
        assert [received(node) for node in nodes.values()] == counts
        assert sender.poll() is None and receiver.poll() is None
        stopped = seen()
        for network in networks.values():
            network.open()
        wait_for(lambda s=stopped: seen() > s, "the stream to flow again")
    end(sender)
    end(receiver)


def test_a_node_that_comes_while_it_is_cut(wiring):
    one = wiring.host(1)
    network = wiring.keep(Network(one, 3, wiring.directory))
    network.connect(network.prepare([]))
    network.cut()
    nodes = {number: wiring.keep(Node(3, number)) for number in (1, 2)}
    for node in nodes.values():
        network.attach(node)
    server = serve(nodes[1], COUNT)
    assert not reaches(nodes[2], nodes[1].address)
    network.open()
    assert reaches(nodes[2], nodes[1].address, seconds=PATIENCE)
    server.wait(PATIENCE)
    end(server)


def test_who_calls_a_node_that_is_not_there_yet(wiring):
    """Longer than the kernel would wait: as when nodes are restored, one earlier than another."""
    one = wiring.host(1)
    network = wiring.keep(Network(one, 3, wiring.directory))
    network.connect(network.prepare([]))
    caller, called = (wiring.keep(Node(3, number)) for number in (1, 2))
    calls = caller.python(CONNECTS, called.address, "4000", str(PATIENCE))
    with pytest.raises(subprocess.TimeoutExpired):
        calls.wait(5)
    network.attach(caller)
    server = serve(called, COUNT)
    with pytest.raises(subprocess.TimeoutExpired):
        calls.wait(5)
    network.attach(called)
    assert calls.communicate(timeout=PATIENCE)[0] == "connected\n"
    server.wait(PATIENCE)
    end(server)


def tables(host):
    return run("nft", "list", "tables", pid=host.pid).stdout


def test_it_ends_with_its_nodes(wiring):
    one, two = wiring.host(1), wiring.host(2)
    nodes, networks = wiring.job(9, {1: one, 2: two, 3: one})
    assert f"singularity_{PORT}_9" in tables(one)
    network = networks[one]
    nodes[1].close()
    wait_for(lambda: network.status()[3] == [3], "it to see that a node has ended")
    nodes[3].close()
    assert network.process.wait(PATIENCE) == 0
    assert tables(one) == ""
    # The kernel has taken everything: the same can be made again.
    wait_for(lambda: port_is_closed(one), "the kernel to close the port")
    again = wiring.keep(Network(one, 9, wiring.directory))
    again.connect(again.prepare([two]))


def port_is_closed(host):
    return run("ss", "-Huln", f"sport = :{PORT}", pid=host.pid).stdout == ""


def test_it_ends_when_it_is_killed(wiring):
    one, two = wiring.host(1), wiring.host(2)
    _, networks = wiring.job(9, {1: one, 2: two})
    networks[one].process.send_signal(signal.SIGKILL)
    networks[one].process.wait(PATIENCE)
    wait_for(lambda: tables(one) == "", "the kernel to take the rules away")
    wait_for(lambda: port_is_closed(one), "the kernel to close the port")
    assert one.ip("-br", "link").count("\n") == 2


def test_two_jobs_cannot_have_one_number(wiring):
    one, two = wiring.host(1), wiring.host(2)
    wiring.job(9, {1: one, 2: two})
    other = wiring.keep(Network(one, 9, wiring.directory))
    with pytest.raises(Refused):
        other.prepare([two])


def test_an_agent_that_comes_again(wiring):
    one = wiring.host(1)
    _, networks = wiring.job(9, {1: one})
    networks[one].socket.close()
    networks[one].reconnect()
    assert networks[one].status() == (True, True, False, [1])


def test_requests_that_are_wrong(wiring):
    one, two = wiring.host(1), wiring.host(2)
    for arguments in ({"vni": 0}, {"vni": 1 << 24}, {"port": 0}, {"local": "0.0.0.0"}, {"local": "224.0.0.1"}):
        network = wiring.keep(Network(one, 9, wiring.directory))
        with pytest.raises(Refused):
            network.prepare([two], **arguments)
    network = wiring.keep(Network(one, 9, wiring.directory))
    with pytest.raises(Refused):
        network.cut()
    with pytest.raises(Refused):
        network.prepare([two, two])
    network.prepare([two])
    for mtu, remotes in ((100, ()), (1 << 20, ()), (1400, ((0, two),)), (1400, ((1, one),)), (1400, ((1, two), (1, two)))):
        with pytest.raises(Refused):
            network.connect(mtu, remotes)
    with pytest.raises(EOFError):
        network.ask(CONNECT, b"\xff" * 7)
    network.reconnect()
    assert network.status() == (True, False, False, [])
