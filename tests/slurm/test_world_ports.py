# SPDX-License-Identifier: GPL-2.0-or-later
"""Ports of elastic jobs that are reached from outside (--singularity-publish), wherever the job is; and nothing else of it."""

import re
import shlex

import pytest
from conftest import AGENTS_YAML, elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean
from test_lifecycle import output, requeue, script
from test_lifecycle_moves import SOON, ctl
from virtualcluster.errors import wait_for

FIRST, LAST = 20000, 20999
YAML = SOON + f"network:\n  publish: {FIRST}-{LAST}\n"
PORT = 6006
# As TensorBoard and Jupyter: it answers, and has a state of its own. Port and the file that ends it may be another job's.
SERVES = """
import http.server, os, sys, threading, time
counted = 0

class Board(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = f"rank {os.environ.get('SLURM_PROCID')} counted {counted} for {self.client_address[0]}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Board)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("serves", flush=True)
while not os.path.exists("/shared/end"):
    counted += 1
    time.sleep(0.02)
"""
# A script in a virtual node has places of its own.
STEPS_ALONE = "--singularity-no-save-script"
ASKS = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=10)
connection.request("GET", "/")
print(connection.getresponse().read().decode())
"""
# Keeps what it has asked for, and hears what becomes of the connection.
KEEPS = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30) as connection:
    connection.settimeout(None)
    print("connected", flush=True)
    try:
        print("read", connection.recv(1), flush=True)
    except OSError as error:
        print("lost", error.errno, flush=True)
"""
# Listens, and does not accept before it is told to; then it serves one client after the other.
LISTENS = """
import os, socket, sys, time
server = socket.create_server(("", int(sys.argv[1])))
print("serves", flush=True)
while not os.path.exists("/shared/accept"):
    time.sleep(0.02)
server.settimeout(0.1)
while not os.path.exists("/shared/end"):
    try:
        one, _ = server.accept()
        one.sendall(b"w")
        one.close()
        print("served one", flush=True)
    except (TimeoutError, OSError):
        pass
"""
# The ports of a host, of these, that answer in any way but by a refusal.
OPEN = """
import socket, sys
for port in [int(sys.argv[2]), *range(int(sys.argv[3]), int(sys.argv[4]) + 1)]:
    try:
        socket.create_connection((sys.argv[1], port), timeout=2).close()
        print(port)
    except ConnectionRefusedError:
        pass
    except OSError as error:
        print(port, error)
"""


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, YAML, nodes=2, conf=TIME_TO_SAVE) as made:
        yield made
        made.controller.run("touch /shared/end")
        assert_clean(made)


@pytest.fixture(autouse=True)
def quiet(cluster):
    cluster.controller.run("rm -f /shared/end /shared/over /shared/accept /shared/client*.log")


def serve(port=PORT):
    return f"/usr/bin/python3 -c {shlex.quote(SERVES)} {port}"


def places(cluster, job):
    """{(step, node, port): (host, port)}, as singularityctl says."""
    shown = ctl(cluster, "status", job).stdout
    found = re.findall(r"^published: +(\S+):(\d+) is port (\d+) of (\S+) in step (\S+)$", shown, re.MULTILINE)
    assert len(found) == len(set(found)) == shown.count("published:"), shown
    return {(step, node, int(port)): (host, int(at)) for host, at, port, node, step in found}


def wait_places(cluster, job, number=1, step="0"):
    wait_for(lambda: len([key for key in places(cluster, job) if key[0] == step]) == number, PATIENCE, f"{number} places of job {job}")
    return {key[1:]: place for key, place in places(cluster, job).items() if key[0] == step}


def asks(client, place):
    """Who has answered, and what it had counted."""
    said = client.run(["python3", "-c", ASKS, place[0], str(place[1])], user="alice").stdout
    rank, counted, seen = re.fullmatch(r"rank (\S+) counted (\d+) for (\S+)\n", said).groups()
    assert seen == client.address
    return rank, int(counted)


def is_open(client, host):
    """The host's ports, of those that a job could have."""
    return client.run(["python3", "-c", OPEN, host, str(PORT), str(FIRST), str(LAST)], user="alice").stdout.split()


def wait_serves(cluster, job, times):
    wait_for(lambda: output(cluster, job).splitlines().count("serves") == times, PATIENCE, f"{times} servers of job {job}: {output(cluster, job)}")


def finish(cluster, job):
    cluster.controller.run("touch /shared/end")
    cluster.wait_job(job, seconds=PATIENCE)


def assert_nothing_left(cluster):
    for host in cluster.nodes:
        wait_for(lambda host=host: not re.search(r"sng-out\d", host.run(["nft", "list", "ruleset"]).stdout), PATIENCE, f"no rules to be left on {host.name}")
        assert is_open(cluster.controller, host.name) == []


def test_each_host_has_its_place(cluster):
    job = cluster.submit(ELASTIC, STEPS_ALONE, f"--singularity-publish={PORT},8888", "-N2", "--ntasks-per-node=1",
                         script=script("srun " + serve(), "until [ -e /shared/over ]; do sleep 0.1; done"))
    wait_serves(cluster, job, 2)
    found = wait_places(cluster, job, 4)
    assert sorted(found) == [("n1", PORT), ("n1", 8888), ("n2", PORT), ("n2", 8888)]
    n1, n2 = cluster.nodes
    for rank, name in enumerate(("n1", "n2")):
        place = found[name, PORT]
        assert place[0] == name and FIRST <= place[1] <= LAST
        # From another host of the cluster, from the other node, and from the host itself.
        for client in (cluster.controller, n1, n2):
            assert asks(client, place)[0] == str(rank)
        assert f"port {PORT} of {name} is reached at {name}:{place[1]}, port 8888 at {name}:{found[name, 8888][1]}\n" in output(cluster, job)
        # Nobody listens at the job's other port: as of any host.
        assert is_open(cluster.controller, name) == [str(place[1])]
    # An agent that comes again finds it so.
    cluster.stop_daemon("n1", "singularityd")
    cluster.start_agents("n1")
    assert asks(cluster.controller, found["n1", PORT])[0] == "0"
    assert len(places(cluster, job)) == 4
    # The step ends, and the script goes on.
    cluster.controller.run("touch /shared/end")
    wait_for(lambda: places(cluster, job) == {}, PATIENCE, "the places to be gone")
    assert_nothing_left(cluster)
    assert cluster.job(job)["JobState"] == "RUNNING"
    cluster.controller.run("touch /shared/over")
    cluster.wait_job(job, seconds=PATIENCE)


def test_it_is_reached_where_there_is_room(cluster):
    """Two nodes, then one for both ranks: each has a place there."""
    job = cluster.submit(ELASTIC, STEPS_ALONE, f"--singularity-publish={PORT}", "--open-mode=append", "--requeue", "-N1-2", "-n2", "--spread-job",
                         script=script("srun " + serve()))
    wait_serves(cluster, job, 2)
    before = wait_places(cluster, job, 2)
    assert {host for host, _ in before.values()} == {"n1", "n2"}
    try:
        cluster.slurm("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
        requeue(cluster, job)
        wait_for(lambda: {host for host, _ in places(cluster, job).values()} == {"n2"}, PATIENCE, "the job to be on one node")
    finally:
        cluster.slurm("scontrol", "update", "NodeName=n1", "State=RESUME")
    after = wait_places(cluster, job, 2)
    assert sorted(after) == sorted(before) and len(set(after.values())) == 2
    for rank, name in enumerate(("n1", "n2")):
        assert asks(cluster.controller, after[name, PORT])[0] == str(rank)
    assert is_open(cluster.controller, "n1") == []
    assert is_open(cluster.controller, "n2") == sorted(str(at) for _, at in after.values())
    finish(cluster, job)
    assert_nothing_left(cluster)


def test_it_is_found_again_elsewhere(cluster):
    job = cluster.submit(ELASTIC, STEPS_ALONE, f"--singularity-publish={PORT}", "--open-mode=append", "--requeue", "-N1", "-n1", script=script("srun " + serve()))
    wait_serves(cluster, job, 1)
    before, = wait_places(cluster, job).values()
    counted = asks(cluster.controller, before)[1]
    cluster.controller.daemon(["python3", "-c", KEEPS, before[0], str(before[1])], "/shared/client.log")

    def heard():
        return cluster.controller.run(["cat", "/shared/client.log"], check=False).stdout

    wait_for(lambda: "connected" in heard(), PATIENCE, "the client to be connected")
    other = {"n1": "n2", "n2": "n1"}[before[0]]
    moved = ctl(cluster, "migrate", job, f"--to={other}")
    assert moved.returncode == 0, moved
    wait_for(lambda: "lost 104" in heard(), PATIENCE, f"the client to hear that its server has gone: {heard()}")
    wait_for(lambda: cluster.job(job)["Restarts"] == "1", PATIENCE, "the job to go on")
    after, = wait_places(cluster, job).values()
    assert after[0] == other
    assert asks(cluster.controller, after)[1] > counted
    assert is_open(cluster.controller, before[0]) == []
    # It is not begun again.
    assert output(cluster, job).splitlines().count("serves") == 1
    assert f"is reached at {other}:{after[1]}" in output(cluster, job)
    finish(cluster, job)
    assert_nothing_left(cluster)


def test_a_client_that_is_not_accepted_holds_up_no_checkpoint(cluster):
    """Its connection is kept while the job runs on, and reset when the job is restored; who comes later is served."""
    job = cluster.submit(ELASTIC, STEPS_ALONE, f"--singularity-publish={PORT}", "--open-mode=append", "--requeue", "-N1", "-n1",
                         script=script(f"srun /usr/bin/python3 -c {shlex.quote(LISTENS)} {PORT}"))
    wait_serves(cluster, job, 1)
    place, = wait_places(cluster, job).values()
    heard = {}

    def connect(name, to):
        cluster.controller.daemon(["python3", "-c", KEEPS, to[0], str(to[1])], f"/shared/client-{name}.log")
        heard[name] = lambda: cluster.controller.run(["cat", f"/shared/client-{name}.log"], check=False).stdout
        wait_for(lambda: "connected" in heard[name](), PATIENCE, f"client {name} to be connected")

    connect("first", place)
    saved = ctl(cluster, "checkpoint", job)
    assert saved.returncode == 0 and saved.stdout.startswith("saved as"), (saved, output(cluster, job))
    assert heard["first"]() == "connected\n"
    requeue(cluster, job)
    wait_for(lambda: "lost 104" in heard["first"](), PATIENCE, f"the client to hear that its server has gone: {heard['first']()}")
    wait_for(lambda: cluster.job(job)["Restarts"] == "1", PATIENCE, "the job to go on")
    place, = wait_places(cluster, job).values()
    connect("second", place)
    assert ctl(cluster, "checkpoint", job).returncode == 0, output(cluster, job)
    # What waited through a checkpoint is served.
    cluster.controller.run("touch /shared/accept")
    wait_for(lambda: "read b'w'" in heard["second"](), PATIENCE, f"the client to be served: {heard['second']()}")
    wait_for(lambda: output(cluster, job).splitlines().count("served one") == 1, PATIENCE, "one client to be served")
    assert output(cluster, job).splitlines().count("serves") == 1
    finish(cluster, job)
    assert_nothing_left(cluster)


def test_a_saved_script_is_reached(cluster):
    job = cluster.submit(ELASTIC, "--singularity-save-script", f"--singularity-publish={PORT}", "--open-mode=append", "--requeue", "-N1", "-n1",
                         script=script("exec " + serve()))
    wait_serves(cluster, job, 1)
    place, = wait_places(cluster, job, step="batch").values()
    counted = asks(cluster.controller, place)[1]
    requeue(cluster, job)
    wait_for(lambda: (cluster.job(job)["Restarts"], cluster.job(job)["JobState"]) == ("1", "RUNNING"), PATIENCE, "the script to go on")
    place, = wait_places(cluster, job, step="batch").values()
    assert asks(cluster.controller, place)[1] > counted
    finish(cluster, job)
    assert_nothing_left(cluster)


def test_a_step_without_a_script(cluster):
    line = ["srun", ELASTIC, f"--singularity-publish={PORT}", "-J", "board", "-N1", "-n1", *shlex.split(serve())]
    cluster.controller.daemon(line, "/tmp/board.out", user="alice")
    job = wait_for(lambda: cluster.slurm("squeue", "-h", "-n", "board", "-t", "R", "-o", "%i"), PATIENCE, "the step to run")
    place, = wait_places(cluster, job).values()
    wait_for(lambda: "serves" in cluster.controller.run(["cat", "/tmp/board.out"]).stdout, PATIENCE, "the server to be up")
    assert asks(cluster.controller, place)[0] == "0"
    finish(cluster, int(job))
    assert_nothing_left(cluster)


def test_a_job_without_it_is_not_reached(cluster):
    job = cluster.submit(ELASTIC, "-N1", "-n1", script=script("srun " + serve()))
    wait_serves(cluster, job, 1)
    name = cluster.job(job)["NodeList"]
    assert places(cluster, job) == {} and is_open(cluster.controller, name) == []
    assert "published" not in cluster.host(name).run(["nft", "list", "ruleset"]).stdout
    finish(cluster, job)


@pytest.mark.parametrize("command", ["sbatch", "srun"])
@pytest.mark.parametrize("value, words", [
    ("0", "'0' is no TCP port: give numbers from 1 to 65535"), ("70000", "'70000' is no TCP port"), ("http", "'http' is no TCP port"),
    ("6006,6006", "6006 is there twice: give each port once"), (",".join(map(str, range(1, 18))), "more than 16 ports")])
def test_bad_ports_are_refused_before_submission(cluster, command, value, words):
    line = [command, ELASTIC, f"--singularity-publish={value}", *(["--wrap=true"] if command == "sbatch" else ["true"])]
    refused = cluster.controller.run(line, user="alice", check=False)
    assert refused.returncode != 0 and f"cannot accept --singularity-publish {value}: " in refused.stderr and words in refused.stderr


def test_it_needs_an_elastic_job_and_a_site_that_has_it(cluster):
    alone = cluster.controller.run(["srun", f"--singularity-publish={PORT}", "true"], user="alice", check=False)
    assert alone.returncode != 0 and "add --singularity-elastic" in alone.stderr
    cluster.spec.singularity_yaml = AGENTS_YAML + SOON
    cluster.write_conf()
    try:
        refused = cluster.controller.run(["srun", ELASTIC, f"--singularity-publish={PORT}", "true"], user="alice", check=False)
        assert refused.returncode != 0 and "this cluster publishes no ports of jobs: ask its administrators for network.publish" in refused.stderr
    finally:
        cluster.spec.singularity_yaml = AGENTS_YAML + YAML
        cluster.write_conf()
    cluster.wait_nodes()


@pytest.mark.parametrize("yaml, words", [
    ("", f"nobody outside reaches port {PORT}, 8888 of n1 on n1: this host publishes none (network.publish in singularity.yaml)"),
    (YAML[len(SOON):] + "per_user:\n  ports: 1\n", "uid 1001 has 0 ports that lead to virtual nodes already and wants 2 more, and per_user.ports in singularity.yaml allows 1")],
    ids=["nothing", "one port"])
def test_a_host_that_allows_less(cluster, yaml, words):
    """What was submitted where it was allowed runs, and says why it is not reached."""
    def start_agent(text):
        cluster.spec.singularity_yaml = AGENTS_YAML + SOON + text
        cluster.write_conf()
        cluster.stop_daemon("n1", "singularityd")
        cluster.start_agents("n1")

    start_agent(yaml)
    cluster.spec.singularity_yaml = AGENTS_YAML + YAML
    cluster.write_conf()
    try:
        job = cluster.submit(ELASTIC, STEPS_ALONE, f"--singularity-publish={PORT},8888", "-wn1", "-n1", script=script("srun " + serve()))
        wait_serves(cluster, job, 1)
        wait_for(lambda: words in output(cluster, job), PATIENCE, f"the words: {output(cluster, job)}")
        assert is_open(cluster.controller, "n1") == [] and places(cluster, job) == {}
        finish(cluster, job)
    finally:
        start_agent(YAML[len(SOON):])
