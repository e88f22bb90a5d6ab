# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that elastic jobs have open for writing end as if nobody had disturbed the job."""

import os
import shlex
import sys

import pytest
from conftest import elastic_up
from elastic import ELASTIC, PATIENCE, TIME_TO_SAVE, assert_clean
from test_lifecycle import output, requeue, script
from test_lifecycle_moves import SOON, ctl
from virtualcluster.errors import wait_for

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checkpoint", "programs")
sys.path.insert(0, PROGRAMS)
import writer  # noqa: E402

# SQLite refuses to write to a database that is another inode than the one that it opened, and rotated logs that are closed
# stay behind.
STAY = ("journal", "transaction", "rotated")
KINDS = {"/shared/work": list(writer.KINDS), "/tmp/work": [kind for kind in writer.KINDS if not any(word in kind for word in STAY)]}
STEPS = 12
SAVED_AFTER = 4
LOST_AFTER = 9

# Starts one that writes for each of the kinds that it is given, in DIRECTORY/NUMBER/files.
ALL = """
import os, subprocess, sys
running = []
for number, kind in enumerate(sys.argv[2:]):
    directory = f"{sys.argv[1]}/{number}/files"
    os.makedirs(directory)
    running.append(subprocess.Popen([sys.executable, "/shared/writer.py", kind, "%d"], cwd=directory))
sys.exit(any([each.wait() for each in running]))
""" % STEPS

# Each of several ranks has the file open and appends to it.
APPENDS = """
import itertools, os, time
file = os.open("/shared/together.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
for number in itertools.count():
    os.write(file, f"{os.environ['SLURM_PROCID']} {number}\\n".encode())
    time.sleep(0.02)
    if os.path.exists("/shared/end"):
        break
"""


@pytest.fixture(scope="module")
def cluster(release):
    with elastic_up(release, SOON, nodes=2, conf=TIME_TO_SAVE) as made:
        with open(os.path.join(PROGRAMS, "writer.py"), encoding="utf-8") as file:
            made.controller.run(["sh", "-c", "cat >/shared/writer.py"], stdin=file.read())
        yield made
        assert_clean(made)


class Work:
    """All kinds at once, on the shared file system or in directories that each host has for itself."""

    def __init__(self, cluster, base, kinds):
        self.cluster = cluster
        self.base = base
        self.kinds = kinds
        for host in [cluster.controller, *cluster.nodes]:
            host.run(["rm", "-rf", base, "/shared/end", "/shared/together.log"])

    def places(self):
        return [f"{self.base}/{number}" for number in range(len(self.kinds))]

    def command(self):
        return " ".join(shlex.quote(word) for word in ["python3", "-c", ALL, self.base, *self.kinds])

    def allow(self, host, steps):
        # As long as before: one of the programs may have it open, for reading, when it is saved.
        host.run("; ".join(f"mkdir -p {place}; echo {steps:02} >{place}/allowed.new; mv {place}/allowed.new {place}/allowed" for place in self.places()),
                 user="alice")

    def until(self, host, steps):
        self.allow(host, steps)

        def done():
            return host.run("; ".join(f"cat {place}/done; echo" for place in self.places()), check=False).stdout.split()

        wait_for(lambda: done() == [str(steps)] * len(self.kinds), PATIENCE, f"step {steps}")

    def content(self, host):
        """By kind. Names of directories are left out."""
        said = host.run(["python3", "/shared/writer.py", "content", *(f"{place}/files" for place in self.places())], user="alice").stdout
        return dict(zip(self.kinds, (line.split(" ", 1)[1] for line in said.splitlines())))


@pytest.fixture(scope="module")
def wanted(cluster):
    work = Work(cluster, "/shared/undisturbed", list(writer.KINDS))
    work.allow(cluster.controller, STEPS)
    cluster.controller.run(f"mkdir -p {work.base}; {work.command()}", user="alice")
    return work.content(cluster.controller)


def lose(cluster, name):
    cluster.kill(name)
    cluster.slurm("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=lost")


def find(cluster, name):
    cluster.boot(name)
    cluster.start_agents(name)
    cluster.slurm("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)  # refused if it has come by itself
    cluster.wait_nodes()


def saved(cluster, job):
    done = ctl(cluster, "checkpoint", job)
    assert done.returncode == 0 and done.stdout.startswith("saved as"), done


def wait_run(cluster, job, restarts):
    wait_for(lambda: (cluster.job(job)["Restarts"], cluster.job(job)["JobState"]) == (str(restarts), "RUNNING"), PATIENCE, f"run {restarts}")


@pytest.mark.parametrize("base", ["/shared/work", "/tmp/work"])
@pytest.mark.parametrize("disturbed", ["power", "requeue", "migrate"])
def test_files_end_as_if_undisturbed(cluster, wanted, disturbed, base):
    """On a file system that all hosts have, and on one of the host's own, of which the files that are open travel."""
    work = Work(cluster, base, KINDS[base])
    for host in cluster.nodes:
        work.allow(host, 0)
    job = cluster.submit(ELASTIC, "--open-mode=append", "-N1", "-n1", "--mem=1000", script=script(f"srun {work.command()}"))
    wait_run(cluster, job, 0)
    name = cluster.job(job)["NodeList"]
    host = cluster.host(name)
    work.until(host, SAVED_AFTER)
    saved(cluster, job)
    work.until(host, LOST_AFTER)
    if disturbed == "power":
        for other in cluster.nodes:
            work.allow(other, 0)
        lose(cluster, name)
    elif disturbed == "requeue":
        requeue(cluster, job)
    else:
        moved = ctl(cluster, "migrate", job)
        assert moved.returncode == 0, moved
    wait_run(cluster, job, 1)
    if disturbed == "power":
        find(cluster, name)
    host = cluster.host(cluster.job(job)["NodeList"])
    work.until(host, STEPS)
    cluster.wait_job(job, seconds=PATIENCE)
    assert cluster.job(job)["JobState"] == "COMPLETED", output(cluster, job)
    found = work.content(host)
    assert {kind: found[kind] for kind in work.kinds if found[kind] != wanted[kind]} == {}
    assert not any(word in output(cluster, job) for word in ("since the checkpoint:", "others write", "cannot be put back"))


def test_ranks_that_append_to_one_file(cluster):
    """On two hosts, saved at different moments; one of the hosts is lost."""
    Work(cluster, "/shared/work", ["w"])
    job = cluster.submit(ELASTIC, "--open-mode=append", "-N2", "--ntasks-per-node=2", script=script(f"srun python3 -c {shlex.quote(APPENDS)}"))

    def lines():
        return cluster.controller.run(["cat", "/shared/together.log"], check=False).stdout.splitlines()

    wait_for(lambda: len(lines()) > 200, PATIENCE, "lines of all ranks")
    saved(cluster, job)
    before = len(lines())
    wait_for(lambda: len(lines()) > before + 200, PATIENCE, "more lines")
    lose(cluster, "n2")
    find(cluster, "n2")
    wait_run(cluster, job, 1)
    before = len(lines())
    wait_for(lambda: len(lines()) > before + 200, PATIENCE, "lines after the restore")
    cluster.controller.run(["touch", "/shared/end"])
    cluster.wait_job(job, seconds=PATIENCE)
    assert cluster.job(job)["JobState"] == "COMPLETED", output(cluster, job)
    for rank in range(4):
        numbers = [int(line.split()[1]) for line in lines() if line.startswith(f"{rank} ")]
        assert numbers == list(range(len(numbers))) and len(numbers) > 100, (rank, numbers)
    assert not any(word in output(cluster, job) for word in ("since the checkpoint:", "others write", "cannot be put back"))


def test_a_user_edits_what_a_job_that_waits_has_open(cluster):
    """What was edited is kept beside it, and the job's output says so."""
    work = Work(cluster, "/shared/work", ["w"])
    host = cluster.controller
    host.run(f"mkdir -p {work.base}/0/files; echo {SAVED_AFTER:02} >{work.base}/0/allowed", user="alice")
    job = cluster.submit(ELASTIC, "--open-mode=append", "-N1", "-n1",
                         script=script(f"cd {work.base}/0/files\nsrun python3 /shared/writer.py w {STEPS}"))
    wait_for(lambda: host.run(["cat", f"{work.base}/0/done"], check=False).stdout == str(SAVED_AFTER), PATIENCE, "the program to write")
    cluster.slurm("scontrol", "requeuehold", str(job))
    wait_for(lambda: cluster.job(job)["JobState"] in ("PENDING", "REQUEUE_HOLD"), PATIENCE, "the job to wait")
    host.run(f"echo edited >>{work.base}/0/files/log; echo {STEPS:02} >{work.base}/0/allowed", user="alice")
    cluster.slurm("scontrol", "release", str(job))
    cluster.wait_job(job, seconds=PATIENCE)
    assert host.run(["cat", f"{work.base}/0/files/log"]).stdout == "".join(map(writer.line, range(STEPS)))
    assert host.run(f"cat {work.base}/0/files/log.aside-*").stdout == "edited\n"
    said = output(cluster, job)
    assert f"singularity-task: '{work.base}/0/files/log': it has grown since the checkpoint" in said, said
    assert "and what was added is in" in said
