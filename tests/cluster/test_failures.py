# SPDX-License-Identifier: GPL-2.0-or-later
"""Power loss, partition, and the death of the harness itself."""

import os
import signal
import subprocess
import sys
import time

import leftovers
import pytest
from virtualcluster import Cluster, kernel
from virtualcluster.cluster import CLUSTERS
from virtualcluster.errors import wait_for

CLI = os.path.join(os.path.dirname(__file__), "cluster")


def test_power_loss_ends_everything_of_the_host_at_once_and_its_disk_stays(make_cluster):
    cluster = make_cluster(nodes=2, plugin=False)
    node = cluster.host("n2")
    node.run("echo kept > /var/lib/file; echo lost > /run/file")
    job = cluster.submit("-N1", "--nodelist=n2", "--no-requeue", "--wrap=sleep 300")
    cluster.wait_job(job, ("RUNNING",))
    cluster.kill("n2")
    assert node.pid() is None
    assert not any(os.path.exists(path) for path in leftovers.cgroups.directories(cluster.name, "n2"))
    cluster.slurm("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=power")
    cluster.wait_job(job, ("NODE_FAIL",))
    cluster.boot("n2")
    cluster.wait_nodes(nodes=["n2"])
    assert node.run("cat /var/lib/file; cat /run/file", check=False).stdout == "kept\n"
    assert cluster.slurm("srun", "--nodelist=n2", "hostname") == "n2"


def test_power_loss_of_the_controller(make_cluster):
    cluster = make_cluster(nodes=1, plugin=False)
    job = cluster.submit("--wrap=until [ -e /shared/go ]; do sleep 0.1; done")
    cluster.wait_job(job, ("RUNNING",))
    # What slurmctld has not saved is lost with the power, on a real controller too.
    running, saved = time.time(), os.path.join(cluster.controller.upper, "var/lib/slurm/slurmctld/job_state")
    wait_for(lambda: os.path.exists(saved) and os.stat(saved).st_mtime > running, 30, "slurmctld to save its state")
    cluster.kill("ctl")
    cluster.host("n1").run("touch /shared/go")
    cluster.boot("ctl")
    cluster.wait_controller()
    cluster.wait_job(job)


def test_partition_loses_packets_until_healed(make_cluster):
    cluster = make_cluster(nodes=2, plugin=False)
    ping = "ping -c1 -W1 n2"
    assert cluster.host("n1").run(ping, check=False).returncode == 0
    cluster.partition("n2")
    assert cluster.host("n1").run(ping, check=False).returncode == 1
    assert cluster.host("ctl").run("ping -c1 -W1 n1", check=False).returncode == 0
    assert cluster.host("n2").run("hostname").stdout == "n2\n"  # cut off, not dead
    cluster.heal("n2")
    wait_for(lambda: cluster.host("n1").run(ping, check=False).returncode == 0, 10, "n2 to answer again")


def _start_harness(name, *extra):
    return subprocess.Popen(
        [sys.executable, CLI, "up", "--name", name, "--stock", "--nodes", "2", *extra],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )


def test_kill_of_the_owner_ends_the_cluster_and_down_leaves_nothing():
    """The harness that owns a running cluster with a running job dies by kill -9; then `down`; then nothing is left."""
    name = f"owned{os.getpid()}"
    owner = subprocess.Popen(["sleep", "300"])
    try:
        assert _start_harness(name, "--owner", str(owner.pid)).wait(60) == 0
        cluster = Cluster.open(name)
        job = cluster.submit("-N2", "--gpus-per-node=1", "--wrap=srun sleep 300")
        cluster.wait_job(job, ("RUNNING",))
        namespaces = leftovers.namespaces_of(cluster)
    finally:
        owner.kill()
        owner.wait()
    wait_for(lambda: not cluster.alive(), 10, "the cluster to end with its owner")
    assert cluster.orphaned()
    subprocess.run([sys.executable, CLI, "down", "--name", name], check=True, timeout=60)
    # The cluster's first process was nobody's child any more: the machine's init reaps it when it comes to it.
    wait_for(lambda: leftovers.everything(cluster, namespaces) == {}, 10,
             f"nothing to be left: {leftovers.everything(cluster, namespaces)}")


# The moments are found by what exists on disk, not by time: each is a state that `up` passes through.
@pytest.mark.parametrize("moment", ["cluster.json", "anchor.lock", "hosts/ctl/init.lock", "hosts/n2/init.lock",
                                    "hosts/ctl/upper/var/log/slurm/slurmctld.log"])
def test_kill_of_the_harness_in_the_middle_of_up(moment):
    name = f"killed{os.getpid()}"
    links = leftovers.links()
    harness = _start_harness(name)
    path = os.path.join(CLUSTERS, name, moment)
    wait_for(lambda: os.path.exists(path), 30, f"up to reach {moment}", interval=0)
    harness.send_signal(signal.SIGKILL)
    harness.wait(10)
    cluster = Cluster(name)
    subprocess.run([sys.executable, CLI, "down", "--name", name], check=True, timeout=60)
    # A process that was just being started when the harness died ends by itself when it finds its cluster gone.
    wait_for(lambda: leftovers.everything(cluster, set()) == {}, 10, f"nothing to be left: {leftovers.everything(cluster, set())}")
    assert kernel.lock_holder(cluster.lock_path) is None
    assert leftovers.links() == links
