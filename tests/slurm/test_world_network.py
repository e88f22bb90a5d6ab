# SPDX-License-Identifier: GPL-2.0-or-later
"""The script of a job on one host and its steps are in one network, as on stock Slurm."""

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean
from test_lifecycle import NEVER, OFTEN, output, requeue, script
from test_scripts import disturb, lines, wait_output

# server.py NAME PORT: answers each line with its name in front, until it is told to quit.
SERVER = """
import os, socketserver, sys
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            if line == b"quit\\n":
                os._exit(0)
            self.wfile.write(sys.argv[1].encode() + b" " + line)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
Server(("", int(sys.argv[2])), Handler).serve_forever()
"""
# client.py HOST PORT COUNT [SECONDS]: asks so often, over one connection, or over another when that was reset; so long apart, and then tells the
# server to quit.
CLIENT = """
import socket, sys, time
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
pause = float(sys.argv[4]) if len(sys.argv) > 4 else 0
def connected():
    until = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((host, port), timeout=60).makefile("rw")
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
stream, n = connected(), 0
while n < count:
    try:
        stream.write(f"{n}\\n")
        stream.flush()
        answer = stream.readline()
        if not answer:
            raise ConnectionResetError("it was closed")
    except ConnectionError as error:
        print("lost:", error, file=sys.stderr, flush=True)
        stream = connected()
        continue
    print(answer, end="", flush=True)
    n += 1
    time.sleep(pause)
if pause:
    stream.write("quit\\n")
    stream.flush()
"""
# Rank 0 listens at port 7000, rank 1 asks it.
PAIR = "if [ $SLURM_PROCID = 0 ]; then exec python3 /shared/server.py paired 7000; else exec python3 /shared/client.py 127.0.0.1 7000 %d 0.2; fi"
# A server whose script ends it.
SERVES = "python3 /shared/server.py script 8000 & server=$!"
COUNT = 40
# They are known by their numbers in a script that runs again.
BEGUN = "until squeue -h -s -j $SLURM_JOB_ID -o %%i | grep -q '[.]%d$'; do sleep 0.1; done"


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, OFTEN, nodes=2, conf=TIME_TO_SAVE) as made:
        for name, text in (("server", SERVER), ("client", CLIENT)):
            made.controller.run(["sh", "-c", f"printf %s \"$1\" > /shared/{name}.py", "sh", text])
        yield made
        assert_clean(made)


def submit(cluster, *of_script, options=("-N1", "-n4", NEVER)):
    return cluster.submit(ELASTIC, *options, script=script(*of_script))


def answers(name, count=COUNT):
    return [f"{name} {n}" for n in range(count)]


def answers_in(shown, name):
    return [line for line in shown if line.startswith(f"{name} ")]


@pytest.mark.parametrize("at", ["$(hostname)", "127.0.0.1", "$(hostname --ip-address)", "$(srun -n1 hostname --ip-address)"])
def test_a_step_reaches_a_server_of_its_script(cluster, at):
    job = submit(cluster, SERVES, f"srun -n1 python3 /shared/client.py {at} 8000 3", f"python3 /shared/client.py {at} 8000 3", "kill $server")
    cluster.wait_job(job, seconds=PATIENCE)
    assert lines(cluster, job) == 2 * answers("script", 3), output(cluster, job)


@pytest.mark.parametrize("how", [None, "requeued", "moved"], ids=["undisturbed", "requeued", "moved"])
def test_two_steps_reach_each_other(cluster, how):
    """Their connection is lost where they go on elsewhere, which both sides hear; those within a step go on."""
    job = submit(cluster, "srun --exact -n1 python3 /shared/server.py step 8000 &", BEGUN % 0, f"srun --exact -n2 sh -c '{PAIR % COUNT}' &", BEGUN % 1,
                 f"srun --exact -n1 python3 /shared/client.py $(hostname) 8000 {COUNT} 0.2", "wait", "echo over")
    wait_output(cluster, job, "^step 5$")
    if how:
        disturb(cluster, job, how)
    cluster.wait_job(job, seconds=3 * PATIENCE)
    shown = lines(cluster, job)
    assert answers_in(shown, "step") == answers("step"), output(cluster, job)
    assert answers_in(shown, "paired") == answers("paired"), output(cluster, job)
    assert sum("lost:" in line for line in shown) == (1 if how else 0), output(cluster, job)
    assert shown[-1] == "over", output(cluster, job)


def test_a_step_that_begins_after_an_agent_has_come_again_is_there_as_well(cluster):
    job = submit(cluster, SERVES, "srun -n1 python3 /shared/client.py 127.0.0.1 8000 1", "until [ -e /shared/go-$SLURM_JOB_ID ]; do sleep 0.1; done",
                 "srun -n1 python3 /shared/client.py 127.0.0.1 8000 2", "kill $server", options=("-N1", "-n3", "-w", "n1", NEVER))
    wait_output(cluster, job, "^script 0$")
    cluster.stop_daemon("n1", "singularityd", "KILL")
    cluster.start_agents("n1")
    cluster.controller.run(["touch", f"/shared/go-{job}"])
    cluster.wait_job(job, seconds=PATIENCE)
    assert lines(cluster, job) == ["script 0", *answers("script", 2)], output(cluster, job)


def test_a_requeued_script_begins_its_server_again(cluster):
    """At the same port, which nothing of the run before has any more."""
    job = submit(cluster, SERVES, f"srun -n1 python3 /shared/client.py $(hostname) 8000 {COUNT} 0.2", "wait", options=("-N1", "-n3", "-w", "n1", NEVER))
    for n in (5, 15):
        wait_output(cluster, job, f"^script {n}$")
        requeue(cluster, job)
    cluster.wait_job(job, seconds=PATIENCE)
    shown = lines(cluster, job)
    assert answers_in(shown, "script") == answers("script"), output(cluster, job)
    assert sum("lost:" in line for line in shown) == 2, output(cluster, job)
