# SPDX-License-Identifier: GPL-2.0-or-later
"""The virtual cluster does what a real one does, several at once, and leaves nothing."""

import os
import subprocess
import sys

import leftovers
import pytest
from virtualcluster import Cluster, ClusterError
from virtualcluster.cluster import releases
from virtualcluster.errors import wait_for


@pytest.mark.parametrize("release", list(releases()))
def test_up_runs_a_job_on_every_node_and_down_leaves_nothing(release):
    links = leftovers.links()
    cluster = Cluster.up(owner=os.getpid(), nodes=2, gpus=4, slurm=release, plugin=False)
    namespaces = leftovers.namespaces_of(cluster)
    assert len(namespaces) >= 3 * 6  # else the assertions at the end would be about nothing
    assert leftovers.everything(cluster, namespaces).keys() == {
        "processes", "mounts", "namespaces", "cgroups", "files"
    }
    out = cluster.slurm("srun", "-N2", "hostname", user="alice")
    assert sorted(out.split()) == ["n1", "n2"]
    cluster.down()
    assert leftovers.everything(cluster, namespaces) == {}
    assert leftovers.links() == links


def test_release_is_what_was_asked_for(make_cluster):
    cluster = make_cluster(nodes=1, slurm="22.05", plugin=False)
    assert cluster.slurm("sinfo", "--version").startswith("slurm-wlm 22.05")


def test_hosts_are_apart(make_cluster):
    cluster = make_cluster(nodes=2, gpus=1, plugin=False)
    seen = {}
    for host in cluster.hosts.values():
        seen[host.name] = host.run("hostname; ps -eo comm= | sort -u | xargs; cat /proc/self/cgroup").stdout
        assert seen[host.name].split()[0] == host.name
    assert "slurmctld" in seen["ctl"] and "slurmctld" not in seen["n1"]
    # Its own view of its cgroups: no path leads above it.
    for line in seen["n1"].split("\n")[2:]:
        assert "slurm-singularity" not in line and "/.." not in line
    cluster.host("n1").run("echo private > /tmp/x; echo common > /shared/x; chmod 666 /shared/x")
    assert cluster.host("n2").run("cat /shared/x; ls /tmp").stdout == "common\n"


def test_tasks_reach_only_the_gpus_they_were_given(make_cluster):
    cluster = make_cluster(nodes=1, gpus=2, plugin=False)
    script = "for i in 0 1; do cat /dev/nvidia$i 2>&1; done; exit 0"
    out = cluster.slurm("srun", "--gpus=1", "bash", "-c", script, user="alice").split("\n")
    # There is no driver behind the nodes: reaching one gives ENXIO, being kept from one EPERM.
    assert out == ["cat: /dev/nvidia0: No such device or address", "cat: /dev/nvidia1: Operation not permitted"]


def test_users_cannot_read_each_other(make_cluster):
    cluster = make_cluster(nodes=1, plugin=False)
    node = cluster.host("n1")
    node.run("umask 077; echo secret > ~/file", user="alice")
    assert node.run("cat /home/alice/file", user="bob", check=False).returncode == 1
    assert node.run("cat /etc/munge/munge.key", user="bob", check=False).returncode == 1


def test_accounting_has_the_qos_and_the_jobs(make_cluster):
    cluster = make_cluster(nodes=1, accounting=True, plugin=False)
    qos = cluster.slurm("sacctmgr", "-nP", "show", "qos", "format=name,preempt").split("\n")
    assert {"premium|basic,standard", "standard|basic", "basic|"} <= set(qos)
    job = cluster.submit("--wrap=true", "--qos=premium")
    cluster.wait_job(job)
    row = cluster.slurm("sacct", "-nPXj", str(job), "--format=user,qos,state")
    assert row == "alice|premium|COMPLETED"


def test_two_clusters_at_once(make_cluster):
    first, second = make_cluster(nodes=1, plugin=False), make_cluster(nodes=1, plugin=False)
    first.host("n1").run("touch /shared/first")
    assert second.host("n1").run("ls /shared").stdout == ""
    first.down()
    assert second.slurm("srun", "hostname") == "n1"


def test_command_line(make_cluster):
    """What people type; the library has its own tests."""
    cluster = make_cluster(nodes=1, plugin=False)

    def cli(*argv, stdin=""):
        line = [sys.executable, os.path.join(os.path.dirname(__file__), "cluster"), argv[0], "--name", cluster.name, *argv[1:]]
        return subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=60, check=False)

    submitted = cli("submit", "--user", "bob", "-N1", "-o", "/shared/cli.out", stdin="#!/bin/sh\nsrun id -un\n")
    assert submitted.stdout == "1\n", submitted.stderr
    cluster.wait_job(1)
    assert cli("exec", "n1", "cat", "/shared/cli.out").stdout == "bob\n"
    assert cli("exec", "--user", "alice", "n1", "sh", "-c", "id -un; exit 3").returncode == 3
    assert f"{cluster.name}: up, Slurm 24.11" in cli("list").stdout
    assert cli("kill", "n1").returncode == 0
    assert "n1(off)" in cli("list").stdout
    assert cli("boot", "n1").returncode == 0
    assert "slurmd version" in cli("logs", "n1").stdout
    wrong = cli("exec", "n9", "true")
    assert wrong.returncode != 0 and "no host 'n9': one of ctl, n1" in wrong.stderr


def test_bad_requests_are_refused_with_the_fix(make_cluster):
    for spec, words in (
        ({"nodes": 0}, "nodes is 0, must be 1 to 64"),
        ({"gpus": 65}, "gpus is 65"),
        ({"slurm": "19.05"}, "unknown Slurm release '19.05': one of 22.05, 24.11, 26.05"),
        ({"name": "No Such/../Name"}, "is no cluster name"),
    ):
        with pytest.raises(ClusterError, match=words):
            Cluster.up(**spec)
    cluster = make_cluster(nodes=1, plugin=False)
    with pytest.raises(ClusterError, match="cluster down --name"):
        Cluster.up(name=cluster.name)
    with pytest.raises(ClusterError, match="no host 'n7': one of ctl, n1"):
        cluster.kill("n7")
    with pytest.raises(ClusterError, match="took over 1 s"):
        cluster.host("n1").run("sleep 600", timeout=1)
    # The host's own sleep stays; the command's goes.
    wait_for(lambda: cluster.host("n1").run("pgrep -x sleep | wc -l").stdout == "1\n", 5, "the command to end")
