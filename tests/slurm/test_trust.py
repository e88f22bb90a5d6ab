# SPDX-License-Identifier: GPL-2.0-or-later
"""When the plugin in slurmctld trusts what it reads, and that it only forwards, with one clear line, when it must not."""

import os
import re
import shutil

import pytest
from virtualcluster.cluster import CHECKOUT
from virtualcluster.errors import wait_for

AGREED = re.compile(r"singularity: slurmctld: slurmctld's records are read correctly .* (\d+) jobs, (\d+) nodes, (\d+) values agree")
FORWARDING = re.compile(r"singularity: slurmctld: only forwarding(?: from now on)?: (.*)")


def wait_log(cluster, pattern, what):
    return wait_for(lambda: pattern.search(cluster.log("ctl", "slurmctld")), 30, what)


def check_forwards(cluster, reason):
    """Forwarding only, said once, for the reason; and Slurm works."""
    found = wait_log(cluster, FORWARDING, "slurmctld's log to say that the plugin only forwards")
    assert reason in found.group(1)
    job = cluster.submit("-N2", "--gpus-per-node=4", "--wrap=srun hostname")
    cluster.wait_job(job)
    log = cluster.log("ctl", "slurmctld")
    assert len(FORWARDING.findall(log)) == 1
    assert not AGREED.search(log)
    assert cluster.daemon_pid("ctl", "slurmctld") is not None


def test_records_are_compared_with_the_public_api(make, version, has_table):
    cluster = make(singularity_yaml="slurmctld:\n  verify_interval: 1s\n")
    if not has_table:
        # Expected where the release under test has moved beyond the newest table.
        check_forwards(cluster, f"not known for Slurm {version}")
        return
    waiting = cluster.submit("-N2", "--hold", "--wrap=true")
    running = cluster.submit("-N2", "--gpus-per-node=4", "--wrap=sleep 60")
    cluster.wait_job(running, ("RUNNING",))
    cluster.wait_job(waiting, ("PENDING",))
    found = wait_log(cluster, AGREED, "the plugin to have compared jobs and nodes")
    assert int(found.group(1)) >= 1 and int(found.group(2)) == 2 and int(found.group(3)) >= 20
    # Values that change all the time must not look like a wrong table: many comparisons, many changes.
    for index in range(15):
        cluster.slurm("scontrol", "update", f"JobId={waiting}", f"Nice={index}", f"Name=name{index}", f"TimeLimit={index + 1}")
        cluster.slurm("srun", "-n1", "true", user="alice")
    assert not FORWARDING.search(cluster.log("ctl", "slurmctld"))
    # A restarted slurmctld knows nothing of that and compares again, with the jobs that it recovered.
    restart_with_empty_log(cluster)
    wait_log(cluster, AGREED, "the plugin to have compared again after a restart of slurmctld")


def restart_with_empty_log(cluster):
    cluster.stop_daemon("ctl", "slurmctld")
    with open(cluster.log_path("ctl", "slurmctld"), "w", encoding="utf-8"):
        pass
    cluster.start_daemon("ctl", "slurmctld")
    cluster.wait_controller()


def test_a_wrong_table_ends_in_forwarding_and_a_running_slurmctld(make, release, version, has_table):
    if not has_table:
        pytest.skip(f"there is no table for {version} that could be made wrong; the plugin only forwards there anyway")
    directory = "release" if release == "24.11" else f"slurm-{release}"
    wrong = os.path.join(CHECKOUT, "build", directory, "tests/unit/wrong-table/select_cons_tres_singularity.so")
    cluster = make(singularity_yaml="slurmctld:\n  verify_interval: 1s\n")
    right = cluster.controller.run("dirname $(find /usr/lib -name select_cons_tres_singularity.so)").stdout.strip()
    place = os.path.join(cluster.directory, "conf/wrong-table")
    os.mkdir(place)
    shutil.copy(wrong, place)
    cluster.write_conf(PluginDir=f"/etc/slurm/wrong-table:{right}")
    restart_with_empty_log(cluster)
    cluster.submit("--hold", "--wrap=true")
    check_forwards(cluster, "job_record.priority is read as")
    assert cluster.job(1)["JobState"] == "PENDING"


def test_configuration_can_switch_decisions_off(make):
    check_forwards(make(singularity_yaml="slurmctld:\n  decide: false\n"), "slurmctld.decide is false")


def test_broken_configuration_does_not_stop_slurmctld(make):
    cluster = make(singularity_yaml="slurmctld:\n  decide: perhaps\n")
    check_forwards(cluster, "/etc/slurm/singularity.yaml")


def test_jobs_survive_the_change_to_the_plugins_and_back(make, release):
    """Running and waiting jobs, from stock to our plugins and back, by slurm.conf and restarts alone."""
    # 22.05 keeps the select plugin's own data with each job, and requeues a running one whose data it cannot read.
    going_on = ("RUNNING", "PENDING") if release == "22.05" else ("RUNNING",)
    ours = {"SelectType": "select/cons_tres_singularity", "PriorityType": "priority/singularity", "JobSubmitPlugins": "singularity"}
    stock = {"SelectType": "select/cons_tres", "PriorityType": "priority/multifactor", "JobSubmitPlugins": None}
    cluster = make(conf=stock)
    running = cluster.submit("-N2", "--gpus-per-node=3", "--wrap=until [ -e /shared/go ]; do sleep 0.1; done")
    waiting = cluster.submit("-N2", "--gpus-per-node=2", "--wrap=true")
    cluster.wait_job(running, ("RUNNING",))
    for conf in (ours, stock, ours):
        cluster.write_conf(**conf)
        cluster.restart_slurm()
        assert conf["SelectType"] in cluster.slurm("scontrol", "show", "config")
        assert cluster.job(running)["JobState"] in going_on
        assert cluster.job(waiting)["JobState"] == "PENDING"
    cluster.controller.run(["touch", "/shared/go"])
    cluster.wait_job(running, seconds=200)  # one that was requeued begins again after a while
    cluster.wait_job(waiting, seconds=200)


def test_slurmctld_ends_quickly_with_the_plugins(make):
    cluster = make(singularity_yaml="slurmctld:\n  verify_interval: 1s\n")
    cluster.submit("--hold", "--wrap=true")
    wait_log(cluster, re.compile("singularity: slurmctld:"), "the plugin to have started")
    pid = cluster.daemon_pid("ctl", "slurmctld")
    cluster.controller.run(["kill", str(pid)])
    # The verifying thread may be waiting for slurmctld's own answer just then; that must not hold it up.
    wait_for(lambda: cluster.daemon_pid("ctl", "slurmctld") is None, 15, "slurmctld to end after SIGTERM")
    text = cluster.tail_of_log("ctl", "slurmctld", 60)
    assert "Segmentation" not in text and "core dumped" not in text and "terminate called" not in text
    cluster.start_daemon("ctl", "slurmctld")
    cluster.wait_controller()
    cluster.wait_nodes()


def test_agent_checks_its_node(make, release):
    cluster = make(nodes=1)
    answer = cluster.host("n1").run(["singularityd", "--check"], check=False)
    lines = dict(line.split(": ", 1) for line in answer.stdout.strip().split("\n"))
    assert lines["ok      root"] == "root" and lines["ok      munge"] and lines["ok      cgroup"]
    if release != "22.05":
        assert answer.returncode == 0 and lines["ok      criu"] >= "4.2"
    else:  # its root has no CRIU
        assert answer.returncode == 1 and "install CRIU 4.2 or newer" in lines["FAILED  criu"]
    as_user = cluster.host("n1").run(["singularityd", "--check"], user="alice", check=False)
    assert as_user.returncode == 1 and "run it as root" in as_user.stdout


def test_configuration_is_checked_by_command(make):
    cluster = make(nodes=1, singularity_yaml="elastic:\n  min_gpus: 2\n")
    assert "min_gpus: 2" in cluster.controller.run(["singularityctl", "config", "check"]).stdout
    cluster.controller.run("echo 'elastic: {min_gpus: many}' > /tmp/bad.yaml")
    answer = cluster.controller.run(["singularityctl", "config", "check", "/tmp/bad.yaml"], check=False)
    assert answer.returncode == 1 and "/tmp/bad.yaml" in answer.stderr and "elastic.min_gpus" in answer.stderr
