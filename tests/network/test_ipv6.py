# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of a job reach the world outside over IPv6 as well, where their host does; and nothing that they do not reach over IPv4."""

import pytest
from test_network import ALICE, run
from test_way_out import ASK, serve_on, why_not
from wiring import AGENTS, EVERYTHING, PORT, inner6
from virtualnode import PATIENCE  # after wiring, which says where it is

SERVE = "import socket, sys; s = socket.create_server(('::', int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True); print('up', flush=True)\n"
WHO = SERVE + "while True: c, who = s.accept(); c.sendall(who[0].encode()); c.close()"
COUNT = SERVE + "c, _ = s.accept(); n = 0\nwhile d := c.recv(1 << 16): n += len(d)\nprint(n)"
LISTEN = ("import socket, sys; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.bind(('::', int(sys.argv[1]))); print('up', flush=True)\n"
          "while d := s.recvfrom(100): print(d[0].decode(), d[1][0], flush=True)")
SAYS = "import socket, sys; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.sendto(sys.argv[3].encode(), (sys.argv[1], int(sys.argv[2])))"
# How long it takes to be told so.
AT_ONCE = ("import socket, sys, time\n"
           "for attempt in range(int(sys.argv[2])):\n"
           "    began = time.monotonic()\n"
           "    try: socket.create_connection((sys.argv[1], 4000), timeout=5); print('connected')\n"
           "    except OSError as error: print(error.errno, time.monotonic() - began < 1)")
WAITS = ("import socket, sys\n"
         "c = socket.create_connection((sys.argv[1], 4000)); print('connected', flush=True)\n"
         "try: print(c.recv(1))\n"
         "except OSError as error: print(error.errno)")


@pytest.fixture(name="world")
def make_world(wiring):
    hosts = [wiring.host(number) for number in (1, 2, 3)]
    for host in hosts:
        host.has_ipv6()
    for host in hosts[:2]:
        run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward", pid=host.pid)
    return hosts


def end(*processes):
    for process in processes:
        process.kill()
        process.communicate()


def serve(node, *argv):
    server = node.python(*argv)
    assert server.stdout.readline() == "up\n"
    return server


def says(node, address, port, text="heard"):
    run("python3", "-c", SAYS, address, str(port), text, pid=node.pid, user=ALICE, check=False)


def refusals(node, address, attempts=30):
    return set(run("python3", "-c", AT_ONCE, address, str(attempts), pid=node.pid, user=ALICE).stdout.splitlines())


def test_connections_leave_with_the_hosts_address(wiring, world):
    one, two, outside = world
    nodes, _ = wiring.job(11, {1: one, 2: two, 3: one}, EVERYTHING)
    server = serve_on(outside, WHO, "4000")
    for node, host in ((1, one), (2, two), (3, one)):
        assert run("python3", "-c", ASK, outside.address6, "4000", pid=nodes[node].pid, user=ALICE).stdout.strip() == host.address6
        assert run("python3", "-c", ASK, outside.address, "4000", pid=nodes[node].pid, user=ALICE).stdout.strip() == "::ffff:" + host.address
    end(server)
    server = serve_on(outside, COUNT, "4000")
    run("python3", "-c", f"import socket; s = socket.create_connection(('{outside.address6}', 4000)); s.sendall(bytes({3 << 20}))", pid=nodes[1].pid)
    assert server.communicate(timeout=PATIENCE)[0] == f"{3 << 20}\n"
    hears = serve_on(outside, LISTEN, "4001")
    says(nodes[2], outside.address6, 4001)
    assert hears.stdout.readline() == f"heard {two.address6}\n"
    end(hears)


def test_within_a_job(wiring, world):
    """Nodes reach each other, on one host and on two, and themselves."""
    one, two, _ = world
    nodes, _ = wiring.job(11, {1: one, 2: two, 3: one}, EVERYTHING)
    server = serve(nodes[1], WHO, "4000")
    for number in (1, 2, 3):
        assert run("python3", "-c", ASK, nodes[1].address6, "4000", pid=nodes[number].pid, user=ALICE).stdout.strip() == nodes[number].address6
    assert run("python3", "-c", ASK, "::1", "4000", pid=nodes[1].pid, user=ALICE).stdout.strip() == "::1"
    assert "ConnectionRefused" in why_not(nodes[2], "::1", 4000)
    end(server)


def test_what_stays_out_of_reach(wiring, world):
    one, two, outside = world
    nodes, networks = wiring.job(11, {1: one}, EVERYTHING)
    others, of_others = wiring.job(12, {1: one}, EVERYTHING)
    servers = [serve_on(host, WHO, str(port)) for host in (one, two) for port in (AGENTS, 4000)]
    for host in (one, two):
        assert why_not(nodes[1], host.address6, 4000) is None
        assert "ConnectionRefused" in why_not(nodes[1], host.address6, AGENTS)
    # The host's loopback, by any name.
    for address in ("::1", "::ffff:127.0.0.1", "::127.0.0.1", "localhost"):
        assert why_not(nodes[1], address, 4000) is not None
    # Another job's node and its end, and the host's end of either, whatever the routes are.
    server, hears = serve(others[1], WHO, "4000"), serve(others[1], LISTEN, "4001")
    ends = [line.split()[2].split("/")[0] for host in (one,) for line in host.ip("-br", "-6", "addr", "show", "scope", "global").splitlines()
            if line.startswith("sng-out")]
    assert len(ends) == 2
    theirs = run("ip", "-br", "-6", "addr", "show", "dev", "outside", pid=of_others[one].process.pid).stdout.split()[2].split("/")[0]
    for address in ends:
        assert "Network is unreachable" in why_not(nodes[1], address, AGENTS)
    for routes in (False, True):
        if routes:
            one.ip("-6", "route", "add", f"{inner6(12, 1)}/128", "via", theirs)
            for address in (inner6(12, 1), theirs):
                run("ip", "-6", "route", "add", f"{address}/128", "via", one.address6, pid=outside.pid)
        for address in (inner6(12, 1), theirs):
            for place in (nodes[1], outside):
                assert why_not(place, address, 4000) is not None
                says(place, address, 4001)
    says(others[1], "::1", 4001, "own")
    assert hears.stdout.readline() == "own ::1\n"
    # Nobody writes into a job's network.
    catcher = serve_on(two, LISTEN, str(PORT))
    says(nodes[1], two.address6, PORT)
    says(two, "::1", PORT, "own")  # root's
    counted = run("nft", "list", "ruleset", pid=one.pid).stdout
    assert any(f" udp dport {PORT} counter packets 1 " in " " + line.strip() for line in counted.splitlines()), counted
    end(*servers, server, hears, catcher)
    assert networks[one].process.poll() is None


def test_nobody_comes_in(wiring, world):
    """A job that publishes does so over IPv4."""
    one, _, outside = world
    nodes, networks = wiring.job(11, {1: one}, EVERYTHING, way_in=True)
    server = serve(nodes[1], WHO, "6006")
    at = networks[one].publish(nodes[1], 6006)[6006]
    assert why_not(outside, one.address, at) is None
    for port in (at, 6006):
        assert "ConnectionRefused" in why_not(outside, one.address6, port)
    end(server)


@pytest.mark.parametrize("outside", [EVERYTHING, [("10.77.0.3/32", 0)], ()])
def test_where_there_is_none_it_is_refused_at_once(wiring, outside):
    """The host has no IPv6, or the site allows no more than is in its list. Again and again."""
    one, stranger = wiring.host(1), wiring.host(3)
    run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward", pid=one.pid)
    if outside != EVERYTHING:
        one.has_ipv6()
    stranger.has_ipv6()
    nodes, _ = wiring.job(11, {1: one}, outside)
    server = serve_on(stranger, WHO, "4000")
    assert refusals(nodes[1], stranger.address6) == {"101 True"}  # ENETUNREACH
    end(server)


def test_a_list(wiring, world):
    one, two, outside = world
    nodes, _ = wiring.job(11, {1: one}, [(f"{two.address6}/128", 0), ("2001:db8:77::2/127", 4000), ("10.77.0.3/32", 4001)])
    servers = [serve_on(host, WHO, str(port)) for host in (one, two, outside) for port in (4000, 4001)]
    for host, port, is_reached in ((two, 4001, True), (two, 4000, True), (outside, 4000, True), (outside, 4001, False), (one, 4000, False)):
        assert (why_not(nodes[1], host.address6, port) is None) == is_reached, (host.address6, port)
    assert why_not(nodes[1], outside.address, 4001) is None and why_not(nodes[1], two.address, 4001) is not None
    end(*servers)


def test_where_it_leads_nowhere_it_is_refused_soon(wiring, world):
    """The host has IPv6, and no route to there; and another job's node. TCP takes the second refusal, after a second, for its answer."""
    nodes, _ = wiring.job(11, {1: world[0]}, EVERYTHING)
    for address in ("2600::1", inner6(12, 7)):
        assert refusals(nodes[1], address, 3) <= {"101 True", "101 False"}, address


def test_others_hear_that_nodes_end(wiring, world):
    one, _, outside = world
    nodes, networks = wiring.job(11, {1: one}, EVERYTHING)
    server = serve_on(outside, SERVE + "c, _ = s.accept()\ntry: print(c.recv(1))\nexcept OSError as error: print(error.errno)", "4000")
    caller = nodes[1].python(WAITS, outside.address6)
    assert caller.stdout.readline() == "connected\n"
    networks[one].release()
    assert server.communicate(timeout=PATIENCE)[0] == "104\n"  # ECONNRESET
    end(caller)


def test_one_job_does_not_fill_the_hosts_table(wiring, world):
    """What it has over IPv6 counts with the rest."""
    one, _, outside = world
    greedy, networks = wiring.job(11, {1: one}, EVERYTHING)
    for place in (one.pid, networks[one].process.pid):
        run("sh", "-c", "echo 3600 >/proc/sys/net/netfilter/nf_conntrack_udp_timeout", pid=place)
    run("python3", "-c", "import socket, sys; s = socket.socket(socket.AF_INET6, type=socket.SOCK_DGRAM)\n"
        "for port in range(1024, 24000):\n"
        "    try: s.sendto(b'x', (sys.argv[1], port))\n"
        "    except OSError: pass", outside.address6, pid=greedy[1].pid, user=ALICE)
    known = int(run("cat", "/proc/sys/net/netfilter/nf_conntrack_count", pid=one.pid).stdout)
    assert 16000 < known < 17000, known
    for address in (outside.address, outside.address6):
        assert why_not(greedy[1], address, 4000) is not None
