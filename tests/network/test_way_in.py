# SPDX-License-Identifier: GPL-2.0-or-later
"""Ports of nodes that their user has published are reached at ports of their host; nothing else of a job is."""

import errno
import signal

import pytest
from test_network import ALICE, COUNT, end, reaches, run, serve
from test_way_out import ASK, WAITS, WHO, serve_on, why_not
from wiring import AGENTS, EVERYTHING, PUBLISHED, inner, start
from virtualnode import PATIENCE, Refused, wait_for  # after wiring, which says where it is

TAKES = "import socket, sys\nfor port in range(int(sys.argv[1]), int(sys.argv[2]) + 1):\n    s = socket.socket(); s.bind(('', port)); s.close()\n    print(port)"


def asks(place, address, port):
    """Whom the server has seen."""
    return run("python3", "-c", ASK, address, str(port), pid=place.pid, user=ALICE).stdout.strip()


def serve_in(node, port):
    server = node.python(WHO, str(port))
    assert server.stdout.readline() == "up\n"
    return server


def ruleset(host):
    return run("nft", "list", "ruleset", pid=host.pid).stdout


@pytest.mark.parametrize("outside", [EVERYTHING, ()])
def test_a_port_is_reached_at_one_of_its_hosts(wiring, world, outside):
    """Also where jobs reach nothing themselves: answers leave."""
    one, two, stranger = world
    nodes, networks = wiring.job(11, {1: one, 2: two}, outside, way_in=True)
    servers = [serve_in(node, port) for node in nodes.values() for port in (6006, 8888)]
    at = {number: networks[host].publish(nodes[number], 6006, 8888) for number, host in ((1, one), (2, two))}
    for number, host in ((1, one), (2, two)):
        assert sorted(at[number]) == [6006, 8888] and len(set(at[number].values())) == 2
        for port in at[number].values():
            assert PUBLISHED[0] <= port <= PUBLISHED[1]
            # From anywhere that reaches the host, and the program sees from where.
            for client in (stranger, one, two):
                assert asks(client, host.address, port) == client.address
    assert ("No route to host" if outside == () else "ConnectionRefused") in why_not(nodes[1], stranger.address, 4000)
    for server in servers:
        end(server)


def test_much_data(wiring, world):
    one, _, stranger = world
    nodes, networks = wiring.job(11, {1: one}, EVERYTHING, way_in=True)
    server = serve(nodes[1], COUNT)
    at = networks[one].publish(nodes[1], 4000)[4000]
    run("python3", "-c", f"import socket; s = socket.create_connection(('{one.address}', {at})); s.sendall(bytes({3 << 20}))", pid=stranger.pid)
    assert server.communicate(timeout=PATIENCE)[0] == f"{3 << 20}\n"


def test_only_what_is_published(wiring, world):
    one, two, stranger = world
    nodes, networks = wiring.job(11, {1: one, 2: one}, EVERYTHING, way_in=True)
    silent, _ = wiring.job(12, {1: one}, EVERYTHING)
    servers = [serve_in(node, port) for node in (*nodes.values(), silent[1]) for port in (6006, 6007)]
    at = networks[one].publish(nodes[1], 6006)[6006]
    assert asks(stranger, one.address, at) == stranger.address
    # Neither the port itself, nor others of the range, nor another host, nor the host's loopback.
    for port in [6006, 6007, *(port for port in range(PUBLISHED[0], PUBLISHED[1] + 1) if port != at)]:
        assert "ConnectionRefused" in why_not(stranger, one.address, port)
    assert "ConnectionRefused" in why_not(stranger, two.address, at)
    assert "ConnectionRefused" in why_not(one, "127.0.0.1", at)
    # Not by the address of the job's end either, whatever the routes are: it is no address of the host's.
    links = [line.split()[2].split("/")[0] for line in one.ip("-br", "-4", "addr").splitlines() if line.startswith("sng-out")]
    for link in links:
        job_end = link[:link.rindex(".") + 1] + str(int(link[link.rindex(".") + 1:]) + 1)
        run("ip", "route", "add", f"{job_end}/32", "via", one.address, pid=stranger.pid)
        for port in (at, 6006, 6007):
            assert not reaches(stranger, job_end, port)
    one.ip("route", "add", f"{inner(12, 1)}/32", "via", job_end)
    run("ip", "route", "add", f"{inner(12, 1)}/32", "via", one.address, pid=stranger.pid)
    assert not reaches(stranger, inner(12, 1), 6006)
    # An agent has said how many nodes there are: no other is published, and none twice.
    for node, code in ((3, errno.ENOENT), (1, errno.EEXIST)):
        with pytest.raises(Refused) as refused:
            networks[one].publish(type("Other", (), {"number": node}), 6007)
        assert refused.value.code == code
    for server in servers:
        end(server)


def test_other_jobs_are_clients_as_any(wiring, world):
    """On the same host and on another one, and the job itself by the host's address."""
    one, two, _ = world
    nodes, networks = wiring.job(11, {1: one, 2: one}, EVERYTHING, way_in=True)
    others, _ = wiring.job(12, {1: one, 2: two}, EVERYTHING)
    server = serve_in(nodes[1], 6006)
    agent = serve_on(one, WHO, str(AGENTS))
    at = networks[one].publish(nodes[1], 6006)[6006]
    assert asks(others[2], one.address, at) == two.address
    assert asks(others[1], one.address, at).startswith("169.254.")
    assert asks(nodes[2], one.address, at).startswith("169.254.")
    assert asks(nodes[1], one.address, at).startswith("169.254.")
    for node in (*nodes.values(), *others.values()):
        assert "ConnectionRefused" in why_not(node, one.address, AGENTS)
    end(server)
    end(agent)


def test_the_hosts_ports_are_taken_and_given_back(wiring, world):
    one, _, stranger = world
    before = ruleset(one)
    nodes, networks = wiring.job(11, {1: one, 2: one}, EVERYTHING, way_in=True)
    assert "published" not in ruleset(one)
    server = serve_in(nodes[1], 6006)
    at = networks[one].publish(nodes[1], 6006)[6006]
    taken = run("python3", "-c", TAKES, str(at), str(at), pid=one.pid, user=ALICE, check=False)
    assert "Address already in use" in taken.stderr
    assert asks(stranger, one.address, at) == stranger.address
    # A node that ends gives them back, though its job goes on.
    end(server)
    nodes[1].close()
    wait_for(lambda: run("python3", "-c", TAKES, str(at), str(at), pid=one.pid, user=ALICE, check=False).returncode == 0, "the port to be free")
    assert "ConnectionRefused" in why_not(stranger, one.address, at) and f"elements = {{ {at} }}" not in ruleset(one)
    # So does all of it that is killed.
    again = networks[one].publish(nodes[2], 6006)[6006]
    networks[one].process.send_signal(signal.SIGKILL)
    networks[one].process.wait(PATIENCE)
    wait_for(lambda: ruleset(one) == before, "the kernel to take the rules away")
    run("python3", "-c", TAKES, str(again), str(again), pid=one.pid, user=ALICE)


def test_ports_that_others_have(wiring, world):
    one, _, stranger = world
    nodes, networks = wiring.job(11, {1: one}, EVERYTHING, way_in=True)
    others, of_others = wiring.job(12, {1: one}, EVERYTHING, way_in=True)
    servers = [serve_in(nodes[1], 6006), serve_in(others[1], 6006)]
    # A program of the host's has one, two jobs want the others.
    program = serve_on(one, WHO, "20001")
    for among in ((20001, 20001), (0, 0), (20002, 20001), (999, 1001)):
        with pytest.raises(Refused) as refused:
            networks[one].publish(nodes[1], 6006, among=among)
        assert refused.value.code == (errno.ENOSPC if among == (20001, 20001) else errno.EINVAL)
    first = networks[one].publish(nodes[1], 6006, among=(20001, 20003))[6006]
    second = of_others[one].publish(others[1], 6006, among=(20001, 20003))[6006]
    assert {first, second} == {20002, 20003}
    for port in (first, second, 20001):
        assert asks(stranger, one.address, port) == stranger.address
    # All or nothing.
    third, of_third = wiring.job(13, {1: one}, EVERYTHING, way_in=True)
    with pytest.raises(Refused):
        of_third[one].publish(third[1], 6006, 6007, among=(20001, 20004))
    run("python3", "-c", TAKES, "20004", "20004", pid=one.pid, user=ALICE)
    assert of_third[one].publish(third[1], 6006, among=(20001, 20004)) == {6006: 20004}
    for server in (*servers, program):
        end(server)


def test_the_same_port_on_another_host(wiring, world):
    """Who has been told of it finds it there, if it is free."""
    one, two, _ = world
    found = []
    for host in (one, two):
        nodes, networks = wiring.job(11, {1: host}, EVERYTHING, way_in=True)
        found.append(networks[host].publish(nodes[1], 6006, 8888))
        networks[host].close()
        nodes[1].close()
    assert found[0] == found[1]


@pytest.mark.parametrize("accepts", [True, False])
def test_clients_hear_that_nodes_end(wiring, world, accepts):
    """As after a checkpoint: the programs stand still, and will be killed."""
    one, _, stranger = world
    nodes, networks = wiring.job(11, {1: one}, EVERYTHING, way_in=True)
    server = nodes[1].python(WAITS if accepts else WAITS.replace("c, _ = s.accept()", "s.listen(); print('connected', flush=True); sys.stdin.read()"), "-",
                             stdin=-1)
    assert server.stdout.readline() == "up\n"
    at = networks[one].publish(nodes[1], 4000)[4000]
    client = start("python3", "-c", WAITS.replace("4000))\nprint('connected'", "int(sys.argv[2])))\nprint('connected'"), one.address, str(at),
                   pid=stranger.pid, stdout=-1)
    assert client.stdout.readline() == "connected\n" and server.stdout.readline() == "connected\n"
    server.send_signal(signal.SIGSTOP)
    networks[one].release()
    assert client.communicate(timeout=PATIENCE)[0] == "104\n"  # ECONNRESET
    assert "ConnectionRefused" in why_not(stranger, one.address, at)
    end(server)
