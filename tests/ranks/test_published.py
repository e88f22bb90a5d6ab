# SPDX-License-Identifier: GPL-2.0-or-later
"""Ports of a job of `singularityctl run` that are reached from outside, where the site allows that."""

import re

import pytest
from rankhosts import PATIENCE, end
from virtualcluster.errors import wait_for

HOSTS = {"network": "publish: 20000-20009", "per_user": "ports: 4"}
SERVES = """
import os, socket
servers = [socket.create_server(("", port)) for port in (6006, 8888)]
print("serves", flush=True)
while True:
    one, _ = servers[0].accept()
    one.sendall(b"rank " + os.environ["RANK"].encode())
    one.close()
"""
ASKS = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10).makefile().read())"


def asks(hosts, place):
    host, _, port = place.partition(":")
    return hosts.host("n3").run(["python3", "-c", ASKS, host, port], user="bob", check=False).stdout.strip()


def told(text):
    """{(node, port): place}"""
    found = {}
    for first, node, places in re.findall(r"port (\d+) of \S+-(\d+) is reached at (.*)$", text, re.MULTILINE):
        for port, place in re.findall(r"(?:port )?(\d+) at (n\d:\d+)", f"{first} at {places}"):
            found[node, int(port)] = place
    return found


def test_who_waits_is_told(hosts):
    """Before the program has written anything; each node has its places, and they are given back."""
    job = hosts.begin("n1", "n1,n2", "python3", "-c", SERVES, options=("--publish", "6006,8888"))
    lines = [job.stderr.readline() for _ in range(2)]
    places = told("".join(lines))
    assert sorted(places) == [("0", 6006), ("0", 8888), ("1", 6006), ("1", 8888)], lines
    for node, host in (("0", "n1"), ("1", "n2")):
        assert places[node, 6006].startswith(host + ":") and places[node, 8888].startswith(host + ":")
        wait_for(lambda node=node: asks(hosts, places[node, 6006]) == f"rank {node}", PATIENCE, f"rank {node} to answer")
    end(job)
    wait_for(lambda: asks(hosts, places["0", 6006]) == "", PATIENCE, "nobody to be there any more")
    wait_for(lambda: hosts.jobs("n1") == {}, PATIENCE, "the job to be gone")


def test_detached_and_restored(hosts):
    """`ps` says where; a restore publishes again, on the host where the node is then."""
    job = hosts.detach("n1", "n1", "python3", "-c", SERVES, options=("--publish", "6006"))
    wait_for(lambda: "serves" in hosts.logs("n1", job), PATIENCE, "the program to serve")
    before = told(hosts.ctl("n1", "ps").stdout)["0", 6006]
    assert before.startswith("n1:") and asks(hosts, before) == "rank 0"
    # Also an agent that comes again knows.
    hosts.kill_agent("n1")
    hosts.start_agent("n1")
    assert told(hosts.ctl("n1", "ps").stdout)["0", 6006] == before and asks(hosts, before) == "rank 0"
    checkpoint = hosts.ctl("n1", "checkpoint", job).stdout.strip()
    wait_for(lambda: asks(hosts, before) == "", PATIENCE, "the place to be gone")
    hosts.ctl("n1", "restore", "--detach", "--hosts", "n2", checkpoint)
    after = told(hosts.ctl("n1", "ps").stdout)["0", 6006]
    assert after.startswith("n2:")
    wait_for(lambda: asks(hosts, after) == "rank 0", PATIENCE, "the program to go on")
    hosts.ctl("n1", "destroy", job)


def test_what_a_user_may_have(hosts):
    """The job runs on without."""
    job = hosts.begin("n1", "n1", "python3", "-c", SERVES, options=("--publish", "1,2,3,4,5"))
    said = job.stderr.readline()
    assert "nobody outside reaches port 1, 2, 3, 4, 5 of" in said and "per_user.ports in singularity.yaml allows 4" in said, said
    assert job.stdout.readline() == "serves\n"
    end(job)
    wait_for(lambda: hosts.jobs("n1") == {}, PATIENCE, "the job to be gone")


@pytest.mark.parametrize("options, words", [
    (("--publish", "6006"), "such a program has no network but its own: make it a job, by --ranks-per-node=1 or --hosts"),
    (("--hosts", "n1", "--publish", "http"), "cannot accept --publish http: 'http' is no TCP port"),
    (("--hosts", "n1", "--publish", "1,1"), "1 is there twice: give each port once")])
def test_what_is_refused(hosts, options, words):
    refused = hosts.ctl("n1", "run", *options, "--", "true", check=False)
    assert refused.returncode != 0 and words in refused.stderr, refused.stderr
