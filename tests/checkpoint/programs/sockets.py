# SPDX-License-Identifier: GPL-2.0-or-later
"""What a program has said of its sockets: options that CRIU does not know, multicast groups. sockets.py STEPS PROGRESS"""

import contextlib
import socket
import struct
import sys

from common import Progress

LOOPBACK = socket.if_nametoindex("lo")
GROUP, OTHER, FROM = "239.1.2.3", "239.1.2.4", "239.1.2.5"
GROUP6 = "ff12::1:2"
# Names that Python's socket does not have, from the kernel's include/uapi.
SO_TIMESTAMP, SO_ZEROCOPY, SO_RXQ_OVFL = 29, 60, 40
IP_MTU_DISCOVER, IP_RECVERR, IP_MULTICAST_ALL = 10, 11, 49
IPV6_MTU_DISCOVER, IPV6_RECVERR = 23, 25
IP_ADD_SOURCE_MEMBERSHIP = 39
UDP_SEGMENT, UDP_GRO = 103, 104
TCP_THIN_LINEAR_TIMEOUTS, TCP_INQ = 16, 36
NETLINK, NETLINK_NO_ENOBUFS, NETLINK_EXT_ACK = 270, 5, 11
MTU_DO, MTU_PROBE = 2, 3

TCP = {
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 12345,
    (socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT): 16384,
    (socket.IPPROTO_TCP, socket.TCP_SYNCNT): 3,
    (socket.IPPROTO_TCP, socket.TCP_LINGER2): 7,
    (socket.IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS): 1,
    (socket.IPPROTO_TCP, TCP_INQ): 1,
    (socket.SOL_SOCKET, SO_ZEROCOPY): 1,
    (socket.SOL_IP, IP_MTU_DISCOVER): MTU_PROBE,
}
LISTENING = {(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT): 3, (socket.IPPROTO_TCP, socket.TCP_FASTOPEN): 5}
UDP = {
    (socket.SOL_IP, IP_MTU_DISCOVER): MTU_DO,
    (socket.SOL_IP, IP_RECVERR): 1,
    (socket.SOL_IP, socket.IP_RECVTOS): 1,
    (socket.SOL_IP, socket.IP_MULTICAST_TTL): 5,
    (socket.SOL_IP, socket.IP_MULTICAST_LOOP): 0,
    (socket.SOL_IP, IP_MULTICAST_ALL): 0,
    (socket.SOL_SOCKET, SO_TIMESTAMP): 1,
    (socket.SOL_SOCKET, SO_RXQ_OVFL): 1,
    (socket.IPPROTO_UDP, UDP_SEGMENT): 1200,
    (socket.IPPROTO_UDP, UDP_GRO): 1,
}
UDP6 = {
    (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS): 9,
    (socket.IPPROTO_IPV6, socket.IPV6_TCLASS): 32,
    (socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER): MTU_DO,
    (socket.IPPROTO_IPV6, IPV6_RECVERR): 1,
    (socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS): 4,
    (socket.SOL_IP, socket.IP_TOS): 16,
}
ROUTES = {(NETLINK, NETLINK_NO_ENOBUFS): 1, (NETLINK, NETLINK_EXT_ACK): 1}
UNIX = {(socket.SOL_SOCKET, SO_TIMESTAMP): 1}


def told(one, options):
    for (level, name), value in options.items():
        one.setsockopt(level, name, value)
    return one


def differences(name, one, options, facts):
    for (level, number), value in options.items():
        found = one.getsockopt(level, number)
        if found != value:
            facts.append((name, level, number, value, found))


def member(address, group=socket.AF_INET):
    return socket.inet_aton(address) + socket.inet_aton("127.0.0.1") if group == socket.AF_INET else socket.inet_pton(group, address) + struct.pack("@I", LOOPBACK)


def bound(family, address):
    one = socket.socket(family, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((address, 0))
    one.setblocking(False)
    return one


def receives(group, listener, sender, expected, facts):
    """Whether what is sent to the group comes to the listener; on the loopback interface it is there at once."""
    sender.sendto(group.encode(), (group, listener.getsockname()[1]))
    with contextlib.suppress(BlockingIOError):
        if (listener.recv(100) == group.encode()) == expected:
            return
        facts.append((group, "was received"))
        return
    if expected:
        facts.append((group, "was not received"))


def joined6(expected, facts):
    """The loopback interface has no route for IPv6's groups, so the kernel is asked."""
    with open("/proc/net/igmp6", encoding="ascii") as groups:
        if (socket.inet_pton(socket.AF_INET6, GROUP6).hex() in groups.read()) != expected:
            facts.append((GROUP6, expected))


def main(steps, progress):
    progress = Progress(progress)
    listener = told(socket.create_server(("127.0.0.1", 0)), LISTENING)
    plain = socket.create_server(("127.0.0.1", 0))
    client = told(socket.create_connection(plain.getsockname()), TCP)
    server = plain.accept()[0]
    fresh = told(socket.socket(), TCP)
    udp, udp6 = told(bound(socket.AF_INET, "127.0.0.1"), UDP), told(bound(socket.AF_INET6, "::1"), UDP6)
    unix, routes = told(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), UNIX), told(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW), ROUTES)

    group, left, chosen = (bound(socket.AF_INET, "0.0.0.0") for _ in range(3))
    for one in (group, left, chosen):
        one.setsockopt(socket.SOL_IP, IP_MULTICAST_ALL, 0)
    group.setsockopt(socket.SOL_IP, socket.IP_ADD_MEMBERSHIP, member(GROUP))
    left.setsockopt(socket.SOL_IP, socket.IP_ADD_MEMBERSHIP, member(OTHER))
    # From one sender alone; another socket from one that sends nothing.
    chosen.setsockopt(socket.SOL_IP, IP_ADD_SOURCE_MEMBERSHIP, socket.inet_aton(FROM) + socket.inet_aton("127.0.0.1") + socket.inet_aton("127.0.0.1"))
    deaf = bound(socket.AF_INET, "0.0.0.0")
    deaf.setsockopt(socket.SOL_IP, IP_ADD_SOURCE_MEMBERSHIP, socket.inet_aton(FROM) + socket.inet_aton("127.0.0.1") + socket.inet_aton("127.0.0.9"))
    deaf.setsockopt(socket.SOL_IP, IP_MULTICAST_ALL, 0)
    group6 = bound(socket.AF_INET6, "::")
    group6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member(GROUP6, socket.AF_INET6))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))

    facts = []
    for _ in range(steps):
        facts.clear()
        for name, one, options in (("listener", listener, LISTENING), ("client", client, TCP), ("fresh", fresh, TCP), ("udp", udp, UDP),
                                   ("udp6", udp6, UDP6), ("unix", unix, UNIX), ("routes", routes, ROUTES)):
            differences(name, one, options, facts)
        differences("server", server, {(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 0, (socket.SOL_SOCKET, SO_ZEROCOPY): 0}, facts)
        receives(GROUP, group, sender, True, facts)
        receives(OTHER, left, sender, True, facts)
        receives(OTHER, group, sender, False, facts)
        receives(FROM, chosen, sender, True, facts)
        receives(FROM, deaf, sender, False, facts)
        joined6(True, facts)
        if facts:
            break
        progress.step()
    print(facts)
    left.setsockopt(socket.SOL_IP, socket.IP_DROP_MEMBERSHIP, member(OTHER))
    receives(OTHER, left, sender, False, facts)
    group6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_LEAVE_GROUP, member(GROUP6, socket.AF_INET6))
    joined6(False, facts)
    print(facts)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
