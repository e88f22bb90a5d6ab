# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts, a switch between them, nodes, and singularity-network as the agent speaks to it (spank/network/messages.hpp)."""

import array
import ipaddress
import itertools
import os
import socket
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "node"))
from virtualnode import BUILD, PATIENCE, Fields, Refused  # noqa: E402

PREPARE, CONNECT, ATTACH, CUT, OPEN, STATUS, PREPARED, DONE, STATE, FAILED, END, RELEASE, PUBLISH, PUBLISHED_PORTS, PLACE = range(128, 143)
PORT = 8475
AGENTS = 8474
EVERYTHING = "everything"
PUBLISHED = (20000, 20009)  # the hosts' ports for that


def run(*argv, pid=None, user=None, check=True, **options):
    """In the network of process pid, to its end."""
    line = ["nsenter", f"--net=/proc/{pid}/ns/net", "--"] if pid else []
    line += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"] if user else []
    return subprocess.run(line + list(argv), capture_output=True, text=True, timeout=PATIENCE, check=check, **options)


def start(*argv, pid=None, **options):
    line = ["nsenter", f"--net=/proc/{pid}/ns/net", "--"] if pid else []
    return subprocess.Popen(line + list(argv), text=True, **options)


def text(value):
    return struct.pack("=I", len(value)) + value.encode()


def inner(vni, node):
    """The node's address: spank/network/plan.cpp."""
    return f"10.{64 + (vni >> 8 & 63)}.{vni & 255}.{node}"


def inner6(vni, node):
    """The same of IPv6: common/node_address.hpp."""
    return str(ipaddress.ip_address(int(ipaddress.ip_address("fd53:696e:6775::")) | int(ipaddress.ip_address(inner(vni, node)))))


class Namespace:
    """A network namespace that lives as long as its one process."""

    def __init__(self):
        self.process = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo up; exec sleep infinity >/dev/null"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"up\n"
        self.process.stdout.close()
        self.pid = self.process.pid

    def ip(self, *words, **options):
        return run("ip", *words, pid=self.pid, **options).stdout

    def close(self):
        self.process.kill()
        self.process.wait()


class Host(Namespace):
    def __init__(self, switch, number, mtu=1500):
        super().__init__()
        self.address, self.address6 = f"10.77.0.{number}", f"2001:db8:77::{number}"
        run("ip", "link", "add", f"p{number}", "mtu", str(mtu), "type", "veth", "peer", "name", "eth0", "mtu", str(mtu), "netns",
            str(self.pid), pid=switch.pid)
        run("ip", "link", "set", f"p{number}", "master", "switch", "up", pid=switch.pid)
        for words in ("link set lo up", f"addr add {self.address}/24 dev eth0", "link set eth0 up"):
            self.ip(*words.split())

    def has_ipv6(self):
        """An address, and what the agent does for jobs."""
        self.ip("addr", "add", f"{self.address6}/64", "dev", "eth0", "nodad")
        run("sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding", pid=self.pid)


class Node(Namespace):
    """As spank/node/network.cpp makes it."""

    def __init__(self, vni, number):
        super().__init__()
        self.number, self.address, self.address6 = number, inner(vni, number), inner6(vni, number)
        for words in ("link add eth0 type veth peer name uplink", f"addr add {self.address}/24 dev eth0", "link set lo up",
                      "link set uplink up", "link set eth0 up", f"route add default via {inner(vni, 254)}", "ntable change name arp_cache dev eth0 mcast_probes 1000 ucast_probes 1000",
                      f"addr add {self.address6}/120 dev eth0 nodad", f"-6 route add default via {inner6(vni, 254)}"):
            self.ip(*words.split())

    def python(self, script, *arguments, **options):
        return start("python3", "-c", script, *arguments, pid=self.pid, stdout=subprocess.PIPE, **options)


class Network:
    """A job's network on one host."""

    numbers = itertools.count()

    def __init__(self, host, vni, directory):
        self.host, self.vni = host, vni
        path = os.path.join(directory, f"{next(self.numbers)}.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(path)
        listener.listen(4)
        self.process = start("bash", "-c", f'exec "$0" 3<&{listener.fileno()}', os.path.join(BUILD, "singularity-network"), pid=host.pid,
                             pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        listener.close()
        self.path = path
        self.token = 0
        self.reconnect()

    def reconnect(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(self.path)

    def ask(self, kind, body=b"", descriptors=()):
        self.token += 1
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        self.socket.sendmsg([struct.pack("=HHI", 1, kind, self.token) + body], control)
        raw, self.given, _, _ = socket.recv_fds(self.socket, 1 << 16, 1)
        if not raw:
            raise EOFError("it has hung up")
        _, kind, token = struct.unpack_from("=HHI", raw)
        assert token == self.token
        fields = Fields(raw[8:])
        if kind == FAILED:
            raise Refused(fields.text(), fields.text(), fields.text(), fields.take("i"))
        return kind, fields

    def cut(self, owner=""):
        self.ask(CUT, text(owner))

    def open(self, owner=""):
        self.ask(OPEN, text(owner))

    def release(self, owner=""):
        self.ask(RELEASE, text(owner))

    def prepare(self, hosts, vni=None, port=PORT, local=None, outside=(), way_in=False, shared=False):
        """The MTU that it offers. outside: EVERYTHING or a list of (network, port). way_in: ports of nodes may be published. shared: by several owners."""
        addresses = [int(ipaddress.ip_address(host.address)) for host in hosts]
        body = struct.pack("=IHI", self.vni if vni is None else vni, port, int(ipaddress.ip_address(local or self.host.address)))
        body += struct.pack(f"=I{len(addresses)}I", len(addresses), *addresses)
        targets = [] if outside == EVERYTHING else [(ipaddress.ip_network(network), number) for network, number in outside]
        body += struct.pack("=BI", outside == EVERYTHING, len(targets))
        for network, number in targets:
            address, ipv6 = int(network.network_address), network.version == 6
            body += struct.pack("=IIH?QQ", 0 if ipv6 else address, network.prefixlen, number, ipv6,
                                *(divmod(address, 1 << 64) if ipv6 else (0, 0)))
        _, fields = self.ask(PREPARE, body + struct.pack("=H??", AGENTS, way_in, shared))
        return fields.take("I")

    def connect(self, mtu, remotes=()):
        """remotes: (node, host)"""
        body = struct.pack("=II", mtu, len(remotes))
        for node, host in remotes:
            body += struct.pack("=II", node, int(ipaddress.ip_address(host.address)))
        self.ask(CONNECT, body)

    def place(self, number, address=None):
        """A descriptor of the network namespace of the nodes of that number."""
        self.ask(PLACE, struct.pack("=II", number, int(ipaddress.ip_address(address or inner(self.vni, number)))))
        [out] = self.given
        return out

    def attach(self, node, owner=""):
        home = os.open(f"/proc/{node.pid}/ns/net", os.O_RDONLY)
        init = os.pidfd_open(node.pid)
        try:
            self.ask(ATTACH, struct.pack("=I", node.number) + text(owner), [home, init])
        finally:
            os.close(home)
            os.close(init)

    def publish(self, node, *ports, among=PUBLISHED, owner=""):
        """{port: the host's}"""
        _, fields = self.ask(PUBLISH, struct.pack(f"=II{len(ports)}HHH", node.number, len(ports), *ports, *among) + text(owner))
        return dict(fields.list("HH"))

    def status(self):
        """(prepared, connected, cut, nodes)"""
        _, fields = self.ask(STATUS)
        flags = fields.take("???")
        return *flags, [fields.take("I") for _ in range(fields.take("I"))]

    def close(self):
        self.socket.close()
        self.process.kill()
        self.process.wait()


class Wiring:
    """A switch, hosts, and jobs on them; all of it ends with close()."""

    def __init__(self, directory):
        self.directory = str(directory)
        self.things = []
        self.switch = self.keep(Namespace())
        run("ip", "link", "add", "switch", "type", "bridge", pid=self.switch.pid)
        run("ip", "link", "set", "switch", "up", pid=self.switch.pid)

    def keep(self, thing):
        self.things.append(thing)
        return thing

    def host(self, number, **options):
        return self.keep(Host(self.switch, number, **options))

    def job(self, vni, nodes, outside=(), way_in=False):
        """nodes: {number: host}. ({number: Node}, {host: Network}), connected."""
        hosts = list(dict.fromkeys(nodes.values()))
        networks = {host: self.keep(Network(host, vni, self.directory)) for host in hosts}
        mtu = min(network.prepare([other for other in hosts if other is not host], outside=outside, way_in=way_in) for host, network in networks.items())
        made = {number: self.keep(Node(vni, number)) for number in nodes}
        for host, network in networks.items():
            network.connect(mtu, [(number, where) for number, where in nodes.items() if where is not host])
            for number, where in nodes.items():
                if where is host:
                    network.attach(made[number])
        return made, networks

    def close(self):
        for thing in reversed(self.things):
            thing.close()
