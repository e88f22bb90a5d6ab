# SPDX-License-Identifier: GPL-2.0-or-later
"""Questions to slurmctld that a user's processes have the agent ask: each is a process of root's, and each user has a share of them."""

import time

import pytest
from conftest import METRICS, elastic_up
from elastic import PATIENCE
from virtualcluster.cluster import USER_IDS
from virtualcluster.errors import wait_for

ALLOWED = 4
HELD = 12
# Says again and again that it is the wrapper of the job's batch script, and that Slurm ends that.
PROGRAM = """
import os, socket, struct, sys, time
job, count = os.environ["SLURM_JOB_ID"], int(sys.argv[1])
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.1)
open(f"/shared/runs-{job}", "w").close()
wait_for("/shared/ask")
connections = []
for _ in range(count):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.connect("/run/singularity/agent.sock")
    one.send(struct.pack("=HHII", 1, 99, 1, 0))  # begin_script
    one.send(struct.pack("=HHI", 1, 100, 2))  # hold_script
    connections.append(one)
answers = [struct.unpack_from("=HHI?", one.recv(4096)) for one in connections]
with open(f"/shared/answered-{job}", "w") as file:
    file.write(str(answers == [(1, 101, 2, False)] * count))
wait_for("/shared/go")
"""


@pytest.fixture(scope="module", name="cluster")
def cluster_with_a_small_share(release):
    with elastic_up(release, nodes=1, yaml=f"per_user: {{questions: {ALLOWED}}}\n") as made:
        yield made


def questions_of(cluster, user):
    """Processes on the node that ask slurmctld about jobs of this user."""
    script = "for one in /proc/[0-9]*; do tr '\\0' ' ' <$one/cmdline; echo; done 2>/dev/null"
    lines = cluster.host("n1").run(["sh", "-c", script], check=False).stdout.splitlines()
    return sum("singularity-slurm job --owner " + str(USER_IDS[user]) in line for line in lines)


def log_of_agent(cluster):
    return cluster.host("n1").run(["cat", "/var/log/singularityd.log"]).stdout


def test_many_questions(cluster):
    controller = cluster.controller
    with open(f"{cluster.directory}/shared/ask.py", "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    alices = cluster.submit("-n1", "--mem=50", f"--wrap=python3 /shared/ask.py {HELD}")
    bobs = cluster.submit("-n1", "--mem=50", "--wrap=python3 /shared/ask.py 1", user="bob")
    for job in (alices, bobs):
        wait_for(lambda one=job: controller.run(["test", "-e", f"/shared/runs-{one}"], check=False).returncode == 0, PATIENCE, f"job {job} to run")
    # Nobody answers until all have been asked that may be.
    slurmctld = str(cluster.daemon_pid("ctl", "slurmctld"))
    controller.run(["kill", "-STOP", slurmctld])
    try:
        controller.run(["touch", "/shared/ask"])
        said = (f"uid {USER_IDS['alice']} has {ALLOWED} questions about jobs that slurmctld has not answered already, "
                f"and per_user.questions in singularity.yaml allows {ALLOWED}")
        wait_for(lambda: said in log_of_agent(cluster), PATIENCE, "the agent to say so")
        most = 0
        until = time.monotonic() + 3
        while time.monotonic() < until or not questions_of(cluster, "bob"):
            assert time.monotonic() < until + PATIENCE
            most = max(most, questions_of(cluster, "alice"))
        assert most == ALLOWED
    finally:
        controller.run(["kill", "-CONT", slurmctld])
    # Who has waited is answered as well.
    for job in (alices, bobs):
        wait_for(lambda one=job: controller.run(["cat", f"/shared/answered-{one}"], check=False).stdout == "True", PATIENCE,
                 f"job {job} to be answered")
    shown = wait_for(lambda: cluster.host("n1").run(["grep", "questions", METRICS], check=False).stdout, PATIENCE, "the metrics")
    assert 'singularity_held_for_one_user{budget="questions"}' in shown
    controller.run(["touch", "/shared/go"])
    for job in (alices, bobs):
        cluster.wait_job(job)
