# SPDX-License-Identifier: GPL-2.0-or-later
"""Elastic jobs and the world outside of them over IPv6: as from the host where it has IPv6, and a quick refusal where it has none."""

import re
import shlex

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean
from test_lifecycle import output, requeue, script
from test_lifecycle_moves import SOON, ctl
from virtualcluster.errors import wait_for

# Of each connection what becomes of it; datagrams are heard and not answered; a third port says who has asked.
SERVER = """
import os, socket, socketserver, threading
log = open("/shared/server6.log", "w")

def say(*words):
    print(*words, file=log, flush=True)

class Waiter(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.settimeout(0.1)
        say("open from", self.client_address[0])
        while True:
            try:
                if self.request.recv(100) == b"":
                    return say("closed")
            except TimeoutError:
                if os.path.exists("/shared/end"):
                    return
            except OSError as error:
                return say("error", error.errno)

class Who(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(self.client_address[0].encode())

class Datagram(socketserver.BaseRequestHandler):
    def handle(self):
        say("datagram from", self.client_address[0])

def serve(base, port, handler):
    made = type("Server", (base,), {"address_family": socket.AF_INET6, "allow_reuse_address": True, "daemon_threads": True})(("::", port), handler)
    threading.Thread(target=made.serve_forever).start()

serve(socketserver.ThreadingTCPServer, 5003, Waiter)
serve(socketserver.ThreadingUDPServer, 5004, Datagram)
serve(socketserver.ThreadingTCPServer, 5005, Who)
say("up")
"""
# Waits without a limit on a connection, and on a connected UDP socket; asks a server that has addresses of both kinds.
WAITS = """
import os, socket, threading, time
server = "{server}"

def datagrams():
    while True:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as one:
            try:
                one.connect((server, 5004))
                one.send(b"keep")
                print("datagram waits", flush=True)
                one.recv(100)
            except OSError as error:
                print("datagram lost", error.errno, flush=True)
        time.sleep(0.5)

# Its own programs over ::1, and over the address that others of its job reach.
own = socket.create_server(("::", 0), family=socket.AF_INET6)
within = socket.create_connection(("::1", own.getsockname()[1]))
other, _ = own.accept()
threading.Thread(target=datagrams, daemon=True).start()
while not os.path.exists("/shared/end"):
    began = time.monotonic()
    try:
        with socket.create_connection((server, 5003), timeout=30) as connection:
            connection.settimeout(None)
            connection.sendall(b"word")
            print("stream waits", flush=True)
            connection.recv(100)
    except OSError as error:
        print("stream lost", error.errno, flush=True)
        if error.errno == 101:
            print("refused", "at once" if time.monotonic() - began < 1 else "late", flush=True)
    with socket.create_connection(("both", 5005), timeout=30) as asks:
        print("both by", asks.recv(100).decode(), flush=True)
    time.sleep(0.3)
within.sendall(b"undisturbed")
print("within is", other.recv(100).decode(), flush=True)
"""


def ipv6(host):
    return f"2001:db8:77::{host.address.split('.')[-1]}"


def give(host):
    host.run(["ip", "addr", "add", f"{ipv6(host)}/64", "dev", "eth0", "nodad"])


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, SOON, nodes=2, conf=TIME_TO_SAVE) as made:
        for host in [made.controller, *made.nodes]:
            give(host)
        for host in made.nodes:
            host.run(f"printf '{ipv6(made.controller)} both\\n{made.controller.address} both\\n' >>/etc/hosts")
        made.controller.daemon(["python3", "-c", SERVER], "/shared/server6.out")
        wait_for(lambda: "up\n" in log(made), PATIENCE, "the server to be up")
        yield made
        made.controller.run("touch /shared/end")
        assert_clean(made)


def log(cluster):
    return cluster.controller.run(["cat", "/shared/server6.log"], check=False).stdout


def count(text, pattern):
    return len(re.findall(pattern, text, re.MULTILINE))


def test_what_the_agent_does_to_a_host(cluster):
    """It forwards for jobs, and for nobody else; its interfaces go on believing routers."""
    host = cluster.nodes[0]
    assert host.run("cat /proc/sys/net/ipv6/conf/all/forwarding").stdout == "1\n"
    assert host.run("cat /proc/sys/net/ipv6/conf/eth0/accept_ra").stdout == "2\n"
    assert 'meta nfproto ipv6 iifname != "sng-out*" oifname != "sng-out*" counter' in host.run(["nft", "list", "chain", "inet", "singularity", "transit6"]).stdout


def test_connections_over_ipv6(cluster):
    """Kept by a checkpoint; both sides hear of a restore; on a host without IPv6 programs hear at once that there is none."""
    n1, n2 = cluster.nodes
    line = f"srun /usr/bin/python3 -c {shlex.quote(WAITS.format(server=ipv6(cluster.controller)))}"
    job = cluster.submit(ELASTIC, "--open-mode=append", "--requeue", "-N1", "-n1", "-wn1", script=script(line))

    def said(pattern):
        return count(output(cluster, job), pattern)

    def move(to, restarts):
        moved = ctl(cluster, "migrate", job, f"--to={to.name}")
        assert moved.returncode == 0, (moved, output(cluster, job))
        wait_for(lambda: (cluster.job(job)["Restarts"], cluster.job(job)["JobState"]) == (str(restarts), "RUNNING"), PATIENCE, f"run {restarts}")

    wait_for(lambda: said("^stream waits$") == 1 and said("^datagram waits$") == 1, PATIENCE, f"the program to wait: {output(cluster, job)}")
    assert ctl(cluster, "checkpoint", job).returncode == 0, output(cluster, job)
    assert said("lost") == 0 and count(log(cluster), "^error") == 0
    move(n2, 1)
    wait_for(lambda: said("^stream waits$") == 2 and said("^datagram waits$") == 2, PATIENCE, f"the program to ask again: {output(cluster, job)}")
    assert said("^stream lost 104$") == 1 and said("^datagram lost 111$") == 1 and said("lost") == 2
    wait_for(lambda: count(log(cluster), "^error 104$") == 1, PATIENCE, f"the server to hear that its client has gone: {log(cluster)}")
    assert re.findall(r"^open from (\S+)$", log(cluster), re.MULTILINE) == [ipv6(n1), ipv6(n2)]
    wait_for(lambda: re.findall(r"^datagram from (\S+)$", log(cluster), re.MULTILINE) == [ipv6(n1), ipv6(n2)], PATIENCE, f"datagrams: {log(cluster)}")
    # Where a host has an address of either kind, IPv4 is chosen: the node's own addresses are private.
    assert set(re.findall(r"^both by (\S+)$", output(cluster, job), re.MULTILINE)) == {f"::ffff:{n2.address}"}
    n1.run(["ip", "addr", "del", f"{ipv6(n1)}/64", "dev", "eth0"])
    try:
        move(n1, 2)
        wait_for(lambda: said("^refused at once$") >= 2, PATIENCE, f"refusals: {output(cluster, job)}")
        # ECONNABORTED: there is no way by which the end of the connection could have been sent.
        assert said("^stream lost 103$") == 1 and said("^datagram lost 111$") == 2 and said("^refused late") == 0, output(cluster, job)
        wait_for(lambda: f"both by ::ffff:{n1.address}" in output(cluster, job), PATIENCE, "the other address to be tried")
    finally:
        give(n1)
    cluster.controller.run("touch /shared/end")
    cluster.wait_job(job, seconds=PATIENCE)
    assert said("^within is undisturbed$") == 1, output(cluster, job)


# Two ranks that count together over a connection of IPv6.
COUNT = """
import os, socket, time
rank = int(os.environ["SLURM_PROCID"])
first = socket.gethostbyname(os.environ["FIRST"])
address = "fd53:696e:6775::" + first
if rank == 0:
    other, _ = socket.create_server((address, 29500), family=socket.AF_INET6).accept()
else:
    for attempt in range(300):
        try:
            other = socket.create_connection((address, 29500))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
number = 0
while number < 1500:
    other.sendall(b"%08d" % number)
    assert int(other.recv(8, socket.MSG_WAITALL)) == number
    number += 1
    if rank == 0 and number % 10 == 0:
        print("counted", number, flush=True)
    time.sleep(0.01)
"""


def test_connections_within_a_job_are_restored(cluster):
    """Over IPv6 as over IPv4: neither side notices."""
    cluster.controller.run("rm -f /shared/end")
    job = cluster.submit(ELASTIC, "--open-mode=append", "--requeue", "-N2", "-n2",
                         script=script("export FIRST=$(scontrol show hostnames | head -n1)", f"srun /usr/bin/python3 -c {shlex.quote(COUNT)}"))
    wait_for(lambda: "counted" in output(cluster, job), PATIENCE, f"both to count: {output(cluster, job)}")
    requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    assert cluster.job(job)["JobState"] == "COMPLETED", output(cluster, job)
    assert [int(number) for number in re.findall(r"^counted (\d+)$", output(cluster, job), re.MULTILINE)] == list(range(10, 1501, 10)), output(cluster, job)
    assert cluster.job(job)["Restarts"] == "1"
