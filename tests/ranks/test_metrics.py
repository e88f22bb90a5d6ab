# SPDX-License-Identifier: GPL-2.0-or-later
"""The agents' metrics: what has happened is counted, once, by the agent that coordinates it, in a file that a strict reader takes."""

import time

import prometheus_text
import pytest
from rankhosts import METRICS, PATIENCE
from virtualcluster.errors import wait_for

RUN = "import os, time\nfor number in range(100000):\n    print(os.environ['RANK'], number, flush=True)\n    time.sleep(0.05)\n"


HOSTS = {"per_user": "output_mib: 8"}
# 3 MiB.
WRITE = "import os, sys\nsys.stdout.write((os.environ['RANK'] * 63 + chr(10)) * (3 << 14))\n"


def read(hosts, name):
    """The newest, or nothing: it is written every 15 s."""
    text = hosts.host(name).run(["cat", METRICS], check=False).stdout
    return prometheus_text.parse(text)[1] if text else {}


def outcome(samples, kind, what="committed"):
    return samples.get(("singularity_checkpoints_total", ("kind", kind), ("outcome", what)), 0)


def wait_metrics(hosts, name, condition, what):
    def look():
        samples = read(hosts, name)
        return samples if samples and condition(samples) else None

    return wait_for(look, PATIENCE, f"{what} in {read(hosts, name)}\n{hosts.log(name)}")


def test_what_happens_to_a_job_is_counted(hosts):
    before = time.time()
    job = hosts.detach("n1", "n1,n2", "python3", "-c", RUN, options=["--every", "1s"])
    of_job = ("job", job)
    samples = wait_metrics(hosts, "n1", lambda now: outcome(now, "periodic") >= 1, "a periodic checkpoint")
    assert samples["singularity_jobs", ("state", "running")] == 1 and samples["singularity_jobs", ("state", "ended")] == 0
    assert samples["singularity_job_checkpoint_interval_seconds", of_job] == 1
    began = samples["singularity_job_start_time_seconds", of_job]
    saved = samples["singularity_job_last_checkpoint_time_seconds", of_job]
    assert int(before) <= began <= saved <= time.time()
    count = outcome(samples, "periodic")
    assert samples["singularity_checkpoint_duration_seconds_count", ("kind", "periodic")] == count
    total = samples["singularity_checkpoint_duration_seconds_sum", ("kind", "periodic")]
    assert 0 < samples["singularity_checkpoint_pause_seconds_sum", ("kind", "periodic")] < total
    assert 0 < samples[("singularity_checkpoint_stored_bytes_total",)]
    assert count * 2**20 < samples[("singularity_checkpoint_host_bytes_total",)]  # two interpreters
    assert samples[("singularity_checkpoint_device_bytes_total",)] == 0
    assert samples["singularity_agent_info", ("version", hosts.ctl("n1", "--version").stdout.strip())] == 1

    def save():
        done = hosts.ctl("n1", "checkpoint", job, check=False)
        return done.stdout.strip() if done.returncode == 0 else None  # else the next periodic one has begun

    checkpoint = wait_for(save, PATIENCE, "the job to be saved")
    hosts.ctl("n1", "restore", "--detach", checkpoint)
    samples = wait_metrics(hosts, "n1", lambda now: now.get(("singularity_restores_total", ("outcome", "succeeded"))), "a restore")
    assert outcome(samples, "asked") == 1 and samples["singularity_restores_total", ("outcome", "failed")] == 0
    assert samples["singularity_restore_duration_seconds_count",] == 1 and samples["singularity_restore_duration_seconds_sum",] > 0
    # The other host has nodes of the job, and coordinates nothing.
    other = wait_metrics(hosts, "n2", lambda now: now["singularity_nodes", ("state", "running")] + now["singularity_nodes", ("state", "saving")] == 1, "a node")
    assert all(outcome(other, kind, what) == 0 for kind in ("asked", "periodic") for what in ("committed", "failed"))
    assert other["singularity_restores_total", ("outcome", "succeeded")] == 0 and of_job not in [key[-1] for key in other]


def test_requests_that_are_refused_are_counted(hosts):
    before = wait_metrics(hosts, "n3", lambda now: True, "metrics")[("singularity_requests_refused_total",)]
    for what in ("checkpoint", "destroy"):
        assert hosts.ctl("n3", what, "u1001-77", check=False).returncode == 1
    wait_metrics(hosts, "n3", lambda now: now[("singularity_requests_refused_total",)] >= before + 2, "two requests")


def test_the_output_of_a_user_has_a_share(hosts):
    """Of six ranks with 3 MiB each all is delivered, and in memory is no more than the share; another user has their own."""
    six = {"options": ["--ranks-per-node", "6"]}
    done = hosts.run("n1", "n1", "python3", "-c", WRITE, **six)
    assert done.returncode == 0, done.stderr
    assert [done.stdout.count(str(rank)) for rank in range(6)] == [63 * (3 << 14)] * 6
    job = hosts.detach("n1", "n1", "python3", "-c", WRITE, **six)
    others = hosts.detach("n1", "n1", "python3", "-c", WRITE, user="bob")
    wait_for(lambda: hosts.state("n1", job) == "ended" and hosts.state("n1", others, "bob") == "ended", PATIENCE, "both jobs to end")
    logs = [hosts.logs("n1", job, "--rank", str(rank)) for rank in range(6)]
    for rank, log in enumerate(logs):
        assert len(log) >= 64 << 10 and log.endswith(f"{str(rank) * 63}\n")
    assert sum(map(len, logs)) <= (8 << 20) + (1 << 20)
    used = hosts.host("n1").run(["du", "-sk", f"/run/singularity/jobs/{job}"]).stdout
    assert int(used.split()[0]) <= 9 << 10
    assert len(hosts.logs("n1", others, user="bob")) == 3 << 20
    wait_metrics(hosts, "n1", lambda now: now["singularity_requests_over_budget_total", ("budget", "output_mib")] >= 1, "the share to be counted")
    hosts.ctl("n1", "destroy", job)
    hosts.ctl("n1", "destroy", others, user="bob")


def test_a_directory_that_is_missing_is_an_error_until_it_is_there(hosts):
    """The agent serves meanwhile."""
    host = hosts.host("n3")
    try:
        host.run(["sed", "-i", f"s#{METRICS}#/run/missing/agent.prom#", "/etc/slurm/singularity.yaml"])
        hosts.kill_agent("n3")
        hosts.start_agent("n3")
        said = "/run/missing/agent.prom.new: No such file or directory"
        wait_for(lambda: said in hosts.log("n3"), PATIENCE, "the agent to say so")
        assert hosts.run("n3", "n3", "true").returncode == 0
        host.run(["mkdir", "/run/missing"])
        wait_for(lambda: host.run(["cat", "/run/missing/agent.prom"], check=False).stdout, PATIENCE, "metrics")
        assert host.run(["stat", "-c", "%a %U", "/run/missing/agent.prom"]).stdout == "644 root\n"
        assert host.run(["ls", "/run/missing"]).stdout == "agent.prom\n"
        assert hosts.log("n3").count(said) == 1
    finally:
        host.run(["sed", "-i", f"s#/run/missing/agent.prom#{METRICS}#", "/etc/slurm/singularity.yaml"])
        hosts.kill_agent("n3")
        hosts.start_agent("n3")


@pytest.mark.parametrize("text, why", [
    ("a 1", "does not end"), ("a 1\n", "None"), ("# TYPE a gauge\na 1\n", "TYPE"), ("# HELP a A.\n# TYPE a gauge\nb 1\n", "in a"),
    ("# HELP a A.\n# TYPE a gauge\na 1\na 1\n", "twice"), ('# HELP a A.\n# TYPE a gauge\na{b="c"d"} 1\n', "no sample"),
    ("# HELP a A.\n# TYPE a counter\na 1\n", "counter"), ("# HELP a A.\n# TYPE a gauge\na one\n", "no sample")])
def test_the_reader_is_strict(text, why):
    with pytest.raises(AssertionError, match=why):
        prometheus_text.parse(text)
