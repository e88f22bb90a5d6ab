# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of a job reach the world outside through their host, as far as the site allows; nobody reaches them."""

import signal

from test_network import ALICE, CHECK, CONNECTS, COUNT, LISTEN, STREAM, end, reaches, run, serve
from wiring import AGENTS, END, EVERYTHING, PORT, inner, start
from virtualnode import PATIENCE, wait_for  # after wiring, which says where it is

SERVE = "import socket, sys; s = socket.create_server(('', int(sys.argv[1]))); print('up', flush=True)\n"
WHO = SERVE + "while True: c, who = s.accept(); c.sendall(who[0].encode()); c.close()"
ASK = ("import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)\n"
       "print(s.makefile().read())")
# What becomes of a connection on which nothing is said.
WAITS = ("import socket, sys\n"
         "if sys.argv[1:2] == ['-']: s = socket.create_server(('', 4000)); print('up', flush=True); c, _ = s.accept()\n"
         "else: c = socket.create_connection((sys.argv[1], 4000))\n"
         "print('connected', flush=True)\n"
         "try: print(c.recv(1))\n"
         "except OSError as error: print(error.errno)")


def serve_on(host, *argv):
    server = start("python3", "-c", *argv, pid=host.pid, stdout=-1)
    assert server.stdout.readline() == "up\n"
    return server


def why_not(node, address, port):
    """None, or the error of a connection."""
    tried = run("python3", "-c", CONNECTS, address, str(port), "2", pid=node.pid, user=ALICE, check=False)
    return None if tried.returncode == 0 else tried.stderr.strip().splitlines()[-1]


def test_connections_leave_with_the_hosts_address(wiring, world):
    one, two, outside = world
    nodes, _ = wiring.job(11, {1: one, 2: two, 3: one}, EVERYTHING)
    server = serve_on(outside, WHO, "4000")
    for node, host in ((1, one), (2, two), (3, one)):
        said = run("python3", "-c", ASK, outside.address, "4000", pid=nodes[node].pid, user=ALICE)
        assert said.stdout.strip() == host.address
    end(server)
    # In full packets, both ways.
    server = serve_on(outside, COUNT)
    run("python3", "-c", f"import socket; s = socket.create_connection(('{outside.address}', 4000)); s.sendall(bytes({3 << 20}))",
        pid=nodes[1].pid)
    assert server.communicate(timeout=PATIENCE)[0] == f"{3 << 20}\n"
    listener = serve_on(outside, LISTEN)
    run("python3", "-c", f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'datagram', ('{outside.address}', 4001))",
        pid=nodes[2].pid, user=ALICE)
    assert listener.stdout.readline() == "datagram\n"
    end(listener)
    # Nodes reach each other as ever.
    server = serve(nodes[1], COUNT)
    assert reaches(nodes[2], nodes[1].address)
    end(server)


def test_a_network_that_has_ended_leaves_its_name_to_the_next(wiring, world):
    """Who hears that it has may make one at once: nothing of the host's is of that name any more."""
    one = world[0]
    for _ in range(5):
        _, networks = wiring.job(11, {1: one}, EVERYTHING)
        assert "singularity_" in run("nft", "list", "tables", pid=one.pid).stdout
        networks[one].ask(END)
        assert "singularity_" not in run("nft", "list", "tables", pid=one.pid).stdout


def test_what_stays_out_of_reach(wiring, world):
    one, two, outside = world
    nodes, _ = wiring.job(11, {1: one}, EVERYTHING)
    others, _ = wiring.job(12, {1: one}, EVERYTHING)
    servers = [serve_on(host, WHO, str(port)) for host in (one, two) for port in (AGENTS, 4000)]
    assert why_not(nodes[1], one.address, 4000) is None
    assert why_not(nodes[1], two.address, 4000) is None
    for host in (one, two):
        assert "ConnectionRefused" in why_not(nodes[1], host.address, AGENTS)
    links = [line.split()[2].split("/")[0] for line in one.ip("-br", "-4", "addr").splitlines() if line.startswith("sng-out")]
    assert len(links) == 2
    for link in links:
        assert "ConnectionRefused" in why_not(nodes[1], link, AGENTS)
    # The job's own loopback is no way to the host's.
    assert "ConnectionRefused" in why_not(nodes[1], "127.0.0.1", 4000)
    # Neither by the address of the other job's end, nor by that of its node, whatever the routes are.
    server = serve(others[1], COUNT)
    for link in links:
        job_end = link[:link.rindex(".") + 1] + str(int(link[link.rindex(".") + 1:]) + 1)
        assert "timed out" in why_not(nodes[1], job_end, 4000)  # dropped: that nothing listens there is not seen either
        run("ip", "route", "add", f"{job_end}/32", "via", one.address, pid=outside.pid)
        assert not reaches(outside, job_end)
    one.ip("route", "add", f"{inner(12, 1)}/32", "via", job_end)
    run("ip", "route", "add", f"{inner(12, 1)}/32", "via", one.address, pid=outside.pid)
    assert not reaches(outside, inner(12, 1))
    assert not reaches(nodes[1], inner(12, 1))
    assert server.poll() is None
    end(server)
    # Not a datagram either.
    hears = others[1].python(LISTEN)
    assert hears.stdout.readline() == "up\n"
    says = "import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); s.sendto(b'heard', (sys.argv[1], 4001))"
    for to in (job_end, inner(12, 1), "127.0.0.1"):
        run("python3", "-c", says, to, pid=nodes[1].pid, user=ALICE)
    run("python3", "-c", says.replace("heard", "own"), others[1].address, pid=others[1].pid)
    assert hears.stdout.readline() == "own\n"
    end(hears)
    # Nobody writes into a job's network from a node.
    catcher = serve_on(two, LISTEN.replace("4001", str(PORT)))
    for port in (PORT, 4009):
        run("python3", "-c", f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('{two.address}', {port}))", pid=nodes[1].pid)
    counted = run("nft", "list", "ruleset", pid=one.pid).stdout
    assert any(f" udp dport {PORT} counter packets 1 " in " " + line.strip() for line in counted.splitlines()), counted
    for one_of in [*servers, catcher]:
        end(one_of)


def test_a_list(wiring, world):
    one, two, outside = world
    nodes, _ = wiring.job(11, {1: one}, [(f"{two.address}/32", 0), (f"{outside.address}/32", 4000)])
    servers = [serve_on(host, WHO, str(port)) for host in (one, two, outside) for port in (4000, 4001)]
    assert why_not(nodes[1], two.address, 4001) is None
    assert why_not(nodes[1], outside.address, 4000) is None
    # At once, and said so.
    assert "No route to host" in why_not(nodes[1], outside.address, 4001)
    assert "No route to host" in why_not(nodes[1], one.address, 4000)
    for server in servers:
        end(server)


def test_nothing(wiring, world):
    one, _, outside = world
    nodes, _ = wiring.job(11, {1: one})
    assert "Network is unreachable" in why_not(nodes[1], outside.address, 4000)
    assert "sng-out" not in one.ip("-br", "link")


def test_it_goes_with_its_job(wiring, world):
    one = world[0]
    before = one.ip("-br", "link")
    nodes, networks = wiring.job(11, {1: one}, EVERYTHING)
    assert "sng-out0" in one.ip("-br", "link")
    again, _ = wiring.job(12, {1: one}, EVERYTHING)
    assert "sng-out1" in one.ip("-br", "link")
    again[1].close()
    networks[one].process.send_signal(signal.SIGKILL)
    networks[one].process.wait(PATIENCE)
    nodes[1].close()
    wait_for(lambda: one.ip("-br", "link") == before, "the kernel to take the interfaces away")
    wait_for(lambda: run("nft", "list", "tables", pid=one.pid).stdout == "", "the kernel to take the rules away")


def test_a_connection_lives_through_a_cut(wiring, world, tmp_path):
    one, _, outside = world
    nodes, networks = wiring.job(11, {1: one}, EVERYTHING)
    progress = tmp_path / "progress"
    receiver = serve_on(outside, CHECK, str(progress))
    sender = nodes[1].python(STREAM, outside.address)
    assert sender.stdout.readline() == "up\n"
    wait_for(progress.exists, "the stream to flow")
    networks[one].cut()
    assert not reaches(nodes[1], outside.address)
    before = progress.read_text()
    networks[one].open()
    wait_for(lambda: progress.read_text() not in (before, ""), "the stream to flow again")
    assert sender.poll() is None and receiver.poll() is None
    end(sender)
    end(receiver)


def test_others_hear_that_nodes_end(wiring, world):
    """As after a checkpoint: the network is cut, the programs stand still, and will be killed."""
    one, two, outside = world
    nodes, networks = wiring.job(11, {1: one, 2: one, 3: two}, EVERYTHING)
    within = serve(nodes[3], WAITS.replace("sys.argv[1:2] == ['-']", "True"))
    without = serve_on(outside, WAITS, "-")
    callers = [nodes[1].python(WAITS, address) for address in (nodes[3].address, outside.address)]
    for process in (*callers, within, without):
        assert process.stdout.readline() == "connected\n"
    for caller in callers:
        caller.send_signal(signal.SIGSTOP)
    networks[one].cut()
    networks[one].release()
    assert without.communicate(timeout=PATIENCE)[0] == "104\n"  # ECONNRESET
    for caller in callers:
        caller.kill()
        caller.wait()
    # Ranks do not hear of each other's end: they are restored together.
    assert within.poll() is None
    assert not reaches(nodes[1], nodes[2].address)
    for process in (*callers, within):
        end(process)


def test_a_connection_that_nobody_knows_is_reset(wiring, world):
    """As that of a program that runs on, on another host."""
    one, _, outside = world
    nodes, networks = wiring.job(11, {1: one}, EVERYTHING)
    server = serve_on(outside, WAITS, "-")
    caller = nodes[1].python("import socket, sys, time; c = socket.create_connection((sys.argv[1], 4000)); print('connected', flush=True)\n"
                             "sys.stdin.read(1)\n"
                             "try: c.send(b'x'); print(c.recv(1))\n"
                             "except OSError as error: print(error.errno)", outside.address, stdin=-1)
    assert caller.stdout.readline() == server.stdout.readline() == "connected\n"
    # With an interface the kernel forgets the connections that had its address.
    link = networks[one].process.pid
    way = run("ip", "route", "show", "default", pid=link).stdout.split()
    for words in (["link", "set", "outside", "down"], ["link", "set", "outside", "up"], ["route", "add", *way]):
        run("ip", *words, pid=link)
    caller.stdin.write("x")
    caller.stdin.flush()
    assert caller.communicate(timeout=PATIENCE)[0] == "104\n"
    end(server)


def test_one_job_does_not_fill_the_hosts_table(wiring, world):
    """Each datagram to another port is a connection to the host."""
    one, _, outside = world
    greedy, networks = wiring.job(11, {1: one}, EVERYTHING)
    honest, _ = wiring.job(12, {1: one}, EVERYTHING)
    for place in (one.pid, networks[one].process.pid):  # none is forgotten meanwhile, however slow the machine is
        run("sh", "-c", "echo 3600 >/proc/sys/net/netfilter/nf_conntrack_udp_timeout", pid=place)
    run("python3", "-c", "import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM)\n"
        "for port in range(1024, 24000):\n"
        "    try: s.sendto(b'x', (sys.argv[1], port))\n"
        "    except OSError: pass", outside.address, pid=greedy[1].pid, user=ALICE)
    known = int(run("cat", "/proc/sys/net/netfilter/nf_conntrack_count", pid=one.pid).stdout)
    assert 16000 < known < 17000, known
    server = serve_on(outside, WHO, "4000")
    assert "No route to host" in why_not(greedy[1], outside.address, 4000)
    assert why_not(honest[1], outside.address, 4000) is None
    end(server)
