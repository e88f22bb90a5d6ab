# SPDX-License-Identifier: GPL-2.0-or-later
"""singularityctl doctor: silent on a good cluster, and it finds what is planted.

The harness' own cluster is none that it praises: KillWait is 5 s there, cred_expire the default. So this one is made good,
with a driver library as NVIDIA's would be: the software GPU under its name. It has one node, because a bind mount of
this machine's disk, as /shared is here, is rightly taken for local.
"""

import json
import os

import pytest
from elftools.elf.elffile import ELFFile
from virtualcluster.errors import wait_for

YAML = 'store:\n  directory: "/shared/store"\n  quota_gib: 10\nagents:\n  address: "0.0.0.0"\n'
CONF = {"AuthInfo": "cred_expire=5", "KillWait": "60", "PreemptMode": "REQUEUE", "PreemptType": "preempt/partition_prio"}
MAKE_GOOD = """
chown 0:0 /shared && chmod 755 /shared && install -d -m 0700 /shared/store
mknod /dev/nvidiactl c 240 255
mkdir /root/good && cp -a /etc/slurm/. /root/good
cp -a /etc/hosts /root/hosts
scope=/proc/sys/kernel/yama/ptrace_scope
[ ! -e $scope ] || { echo 1 >/root/scope && mount --bind /root/scope $scope; }
"""
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
DRIVER = f"{LIBRARIES}/libcuda.so.1"
# 22.05's build has no device proxy, and its root no CRIU; squashfuse is in the main root alone.
LACKING = {"22.05": {"criu-version", "libraries", "driver-library", "images-server"}, "26.05": {"images-server"}}


@pytest.fixture(scope="module")
def cluster(release):
    from conftest import up

    with up(release, True, CONF, nodes=1, singularity_yaml=YAML) as made:
        node = made.host("n1")
        node.run(MAKE_GOOD)
        if "driver-library" not in LACKING.get(release, ()):
            node.run(f"ln -s /usr/lib/singularity/softgpu/libcuda.so.1 {DRIVER}")
        start_agent(node)
        yield made


@pytest.fixture
def node(cluster, release):
    if release != "24.11":
        pytest.skip("what is planted does not depend on Slurm's release, and 22.05 has no good cluster to spoil")
    return cluster.host("n1")


def start_agent(node):
    node.daemon(["sh", "-c", "echo $$ >/run/agent.pid; exec singularityd"], "/var/log/singularityd.log")
    wait_for(lambda: node.run("test -S /run/singularity/agent.sock", check=False).returncode == 0, 10, "singularityd to listen")


def diagnose(node, *options, user="root", env=None):
    answer = node.run(["singularityctl", "doctor", "--json", *options], user=user, check=False, env=env)
    assert answer.stderr == ""
    found = json.loads(answer.stdout)
    assert found["status"] == answer.returncode
    for finding in found["findings"]:
        assert finding["severity"] in ("error", "warning") and finding["what"] and finding["why"] and finding["fix"]
    return found


def names(found):
    return {finding["check"] for finding in found["findings"]}


def test_a_good_cluster_gives_one_line(cluster, release):
    node = cluster.host("n1")
    if release == "24.11":
        answer = node.run(["singularityctl", "doctor"], check=False)
        assert (answer.stdout, answer.stderr, answer.returncode) == ("no problem found\n", "", 0)
    else:  # what this release's Slurm says is understood
        assert names(diagnose(node)) == LACKING[release]


def test_a_user_is_told_what_only_root_can_see(node):
    found = diagnose(node, user="alice")
    assert found["status"] == 0 and found["findings"] == []
    assert {part["part"] for part in found["not_looked_at"] if part["reason"] == "needs root"} == {
        "files of keys", "version of the node agent", "what CRIU needs of the kernel", "what private networks need of the kernel",
        "what steps in images need"}
    shown = node.run(["singularityctl", "doctor"], user="alice").stdout
    assert shown.startswith("no problem found\nnot looked at (needs root: ")


def test_a_host_that_is_no_node(cluster):
    found = diagnose(cluster.controller)
    assert found["status"] == 0 and "node agent" in {part["part"] for part in found["not_looked_at"]}


def test_what_cannot_be_seen_is_no_good_news(node):
    node.run("printf '#!/bin/sh\necho slurmctld is away >&2; exit 1\n' >/usr/local/bin/scontrol; chmod 755 /usr/local/bin/scontrol")
    try:
        found = diagnose(node)
    finally:
        node.run("rm /usr/local/bin/scontrol")
    assert found["status"] == 2 and found["findings"] == []
    reasons = {part["part"]: (part["reason"], part["words"]) for part in found["not_looked_at"]}
    assert set(reasons) == {"slurm.conf, as slurmctld has it", "clock of slurmctld's host", "plugstack.conf"}
    reason, words = reasons["slurm.conf, as slurmctld has it"]
    assert reason == "cannot look" and "slurmctld is away (exit 1)" in words


def test_a_clock_that_cannot_be_compared_is_told(node):
    found = diagnose(node, env={"SLURM_TIME_FORMAT": "%s"})
    assert found["status"] == 2 and found["findings"] == []
    assert [(part["part"], "SLURM_TIME_FORMAT" in part["words"]) for part in found["not_looked_at"]] == [("clock of slurmctld's host", True)]


def test_what_a_finding_looks_like(node):
    node.run("chmod 750 /shared/store")
    try:
        answer = node.run(["singularityctl", "doctor"], check=False)
    finally:
        node.run("chmod 700 /shared/store")
    what, why, fix, end = answer.stdout.split("\n", 3)
    assert answer.returncode == 1 and end == "\n"
    assert what == "error: the checkpoint store /shared/store belongs to uid 0 and has mode 0750"
    assert why.startswith("  why: ") and fix.startswith("  fix: ") and "chmod 0700 /shared/store" in fix


# A node listens there that is not root's.
IMPOSTOR = """python3 -c 'import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind("/tmp/impostor"); s.listen(); print("up", flush=True); s.accept()'"""
SUBMIT = "$(find /usr/lib -name job_submit_singularity.so)"
DIRECTORY = "$(dirname $(find /usr/lib -name select_cons_tres.so))"
PLUGIN = "$(find /usr/lib -name spank_singularity.so)"
CRIU = "/usr/local/sbin/criu"
FAKE_CRIU = f"printf '#!/bin/sh\\n{{}}\\n' >{CRIU}; chmod 755 {CRIU}"
KEY = "sed -i 's/^{}=.*/{}/' /etc/slurm/{}"

# name: (what must be found, in a shell what is spoilt, and how it is mended beyond /etc/slurm, doctor's options)
PLANTED = {
    "no devices cgroup": ({"constrain-devices"}, KEY.format("ConstrainDevices", "ConstrainDevices=no", "cgroup.conf"), "", ()),
    "no cgroup.conf": ({"constrain-devices"}, "rm /etc/slurm/cgroup.conf", "", ()),
    "children get signals": ({"signal-children"}, "echo SignalChildrenProcesses=yes >>/etc/slurm/cgroup.conf", "", ()),
    "another hierarchy": ({"cgroup-plugin"}, KEY.format("CgroupPlugin", "CgroupPlugin=cgroup\\/v2", "cgroup.conf"), "", ()),
    "no plugstack.conf": ({"plugstack-line"}, "rm /etc/slurm/plugstack.conf", "", ()),
    "no line": ({"plugstack-line"}, "echo '# required spank_singularity.so' >/etc/slurm/plugstack.conf", "", ()),
    "optional": ({"plugstack-required"}, "sed -i s/required/optional/ /etc/slurm/plugstack.conf", "", ()),
    "optional, in a file that is included": (
        {"plugstack-required"},
        "mkdir /etc/slurm/p.d; mv /etc/slurm/plugstack.conf /etc/slurm/p.d/a.conf; sed -i s/required/optional/ /etc/slurm/p.d/a.conf;"
        "echo 'include p.d/*.conf' >/etc/slurm/plugstack.conf", "rm -r /etc/slurm/p.d", ()),
    "no plugin in slurmctld": ({"job-submit-file"}, f"mv {SUBMIT} /root/submit.so", f"mv /root/submit.so {DIRECTORY}/job_submit_singularity.so", ()),
    "no plugin": ({"plugin-file"}, "echo required /nowhere/spank_singularity.so >/etc/slurm/plugstack.conf", "", ()),
    "plugin is a directory": (
        {"plugin-file"}, "mkdir /tmp/spank_singularity.so; echo required /tmp/spank_singularity.so >/etc/slurm/plugstack.conf",
        "rmdir /tmp/spank_singularity.so", ()),
    "plugin is a link to nothing": (
        {"plugin-file"}, "ln -s nowhere /tmp/spank_singularity.so; echo required /tmp/spank_singularity.so >/etc/slurm/plugstack.conf",
        "rm /tmp/spank_singularity.so", ()),
    "plugin is a link of a user": (
        {"plugin-way"},
        f"ln -s {PLUGIN} /tmp/spank_singularity.so; chown -h alice /tmp/spank_singularity.so;"
        "echo required /tmp/spank_singularity.so >/etc/slurm/plugstack.conf", "rm /tmp/spank_singularity.so", ()),
    "plugin in a user's directory, by a link": (
        {"plugin-way"},
        f"install -d -o alice /opt/user; cp {PLUGIN} /opt/user; ln -s ../opt/user /tmp/link;"
        "echo required /tmp/link/spank_singularity.so >/etc/slurm/plugstack.conf", "rm -r /tmp/link /opt/user", ()),
    "plugin can be written": ({"plugin-owner"}, f"chmod 664 {PLUGIN}", f"chmod 644 {PLUGIN}", ()),
    "plugin of a user": ({"plugin-owner"}, f"chown alice {PLUGIN}", f"chown root {PLUGIN}", ()),
    "plugin is none": (
        {"plugin-loads"}, "echo >/tmp/spank_singularity.so; echo required /tmp/spank_singularity.so >/etc/slurm/plugstack.conf",
        "rm /tmp/spank_singularity.so", ()),
    "wrong key": ({"configuration"}, "echo 'stroe: 1' >>/etc/slurm/singularity.yaml", "", ()),
    "not elastic": ({"elastic-enabled"}, "printf 'elastic:\\n  enabled: false\\n' >>/etc/slurm/singularity.yaml", "", ()),
    "decides nothing": ({"decide"}, "printf 'slurmctld:\\n  decide: false\\n' >>/etc/slurm/singularity.yaml", "", ()),
    "no quota": ({"store-quota"}, "sed -i /quota_gib/d /etc/slurm/singularity.yaml", "", ()),
    "a user's configuration": ({"configuration-way"}, "chown alice /etc/slurm", "chown root /etc/slurm", ()),
    "a key for all": ({"key-files"}, "chmod 0444 /etc/munge/munge.key", "chmod 0400 /etc/munge/munge.key", ()),
    "a key that others write": ({"key-files"}, "install -m 0660 /dev/null /etc/slurm/slurm.key", "rm /etc/slurm/slurm.key", ()),
    "foreign address": ({"agents-address-own"}, "sed -i s/0.0.0.0/10.99.0.1/ /etc/slurm/singularity.yaml", "", ()),
    "no /dev/fuse": ({"images-fuse"}, "mv /dev/fuse /dev/away", "mv /dev/away /dev/fuse", ()),
    "no squashfuse": ({"images-server"}, "mv /usr/bin/squashfuse_ll /usr/bin/away", "mv /usr/bin/away /usr/bin/squashfuse_ll", ()),
    "no munged": ({"munge"}, "echo '  munge_socket: /run/nothing' >>/etc/slurm/singularity.yaml", "", ()),
    "no store": ({"store-missing"}, "rmdir /shared/store", "install -d -m 0700 /shared/store", ()),
    "store of a user": ({"store-owner"}, "chown alice /shared/store", "chown root /shared/store", ()),
    "store below a link": ({"store-way"}, "ln -s /shared /link; sed -i s,/shared,/link, /etc/slurm/singularity.yaml", "rm /link", ()),
    "others above the store": ({"store-way"}, "chmod 777 /shared", "chmod 755 /shared", ()),
    "store in memory, full": (
        {"store-memory", "store-space"},
        "mount -t tmpfs -o size=1m,mode=700 tmpfs /shared/store; head -c 1000000 /dev/zero >/shared/store/much", "umount /shared/store", ()),
    "staging in memory": ({"staging-memory"}, "true", "", ("--staging=/tmp/staging",)),
    "staging for all": ({"staging-owner"}, "mkdir -m 755 /var/lib/open", "rmdir /var/lib/open", ("--staging=/var/lib/open",)),
    "local directories for all": (
        {"local-owner", "local-quota"}, r"printf 'local_directories:\n  paths: /tmp\n  base: /var/lib/open\n' >>/etc/slurm/singularity.yaml; mkdir -m 755 /var/lib/open",
        "rmdir /var/lib/open", ()),
    "no agent": ({"agent-silent"}, "true", "", ("--socket=/run/nothing",)),
    "agent lacks a program": (
        {"libraries"}, "chmod a-x /usr/lib/singularity/singularity-worker", "chmod 755 /usr/lib/singularity/singularity-worker", ()),
    "agent lacks a library": (
        {"libraries"}, f"mkdir /root/away; mv {LIBRARIES}/libslurm.so.* /root/away", f"mv /root/away/* {LIBRARIES}; rmdir /root/away", ()),
    "no NCCL": ({"nccl"}, "echo '  nccl: /nowhere/libnccl.so.2' >>/etc/slurm/singularity.yaml", "", ()),
    "NCCL for root": (
        {"nccl"}, "install -m 600 /dev/null /opt/libnccl.so.2; echo '  nccl: /opt/libnccl.so.2' >>/etc/slurm/singularity.yaml", "rm /opt/libnccl.so.2", ()),
    "old CRIU": ({"criu-version"}, FAKE_CRIU.format("echo Version: 4.1.1"), f"rm {CRIU}", ()),
    "no CRIU": ({"criu-version"}, "mv /usr/sbin/criu /usr/sbin/no-criu", "mv /usr/sbin/no-criu /usr/sbin/criu", ()),
    "kernel without CRIU": (
        {"criu-kernel"}, FAKE_CRIU.format("[ $1 = check ] \\&\\& exit 1; echo Version: 4.2").replace("\\&", "&"), f"rm {CRIU}", ()),
    "no driver": ({"driver-missing"}, "mv /dev/nvidiactl /dev/away", "mv /dev/away /dev/nvidiactl", ()),
    "no driver library": ({"driver-library"}, f"mv {DRIVER} /tmp/away", f"mv /tmp/away {DRIVER}", ()),
    "a GPU is gone": ({"device-files"}, "mv /dev/nvidia3 /dev/away", "mv /dev/away /dev/nvidia3", ()),
    "name without address": ({"host-resolves"}, "sed -i '/ n1$/d' /etc/hosts", "cp -a /root/hosts /etc/hosts", ()),
    "name of loopback": ({"host-loopback"}, "sed -i 's/.* n1$/127.0.1.1 n1/' /etc/hosts", "cp -a /root/hosts /etc/hosts", ()),
    "name of another": ({"host-address"}, "sed -i 's/.* n1$/10.77.0.99 n1/' /etc/hosts", "cp -a /root/hosts /etc/hosts", ()),
    "another time": (
        {"clock"}, "printf '#!/bin/sh\n/usr/bin/scontrol \"$@\" | sed \"s/ as of 20../ as of 2001/\"\n' >/usr/local/bin/scontrol; chmod 755 /usr/local/bin/scontrol",
        "rm /usr/local/bin/scontrol", ()),
    "partition cancels": (
        {"preempt-partition"}, "scontrol update PartitionName=low PreemptMode=CANCEL", "scontrol update PartitionName=low PreemptMode=REQUEUE", ()),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found_alone(node, name):
    checks, spoil, mend, options = PLANTED[name]
    node.run(spoil)
    try:
        found = diagnose(node, *options)
    finally:
        node.run(mend + "\ncp -a /root/good/. /etc/slurm")
    assert names(found) == checks and found["status"] == 1


def test_what_images_need_is_not_missed_where_there_are_none(node):
    node.run(r"mv /dev/fuse /dev/away; printf 'containers:\n  enabled: false\n' >>/etc/slurm/singularity.yaml")
    try:
        found = diagnose(node)
    finally:
        node.run("mv /dev/away /dev/fuse; cp -a /root/good/. /etc/slurm")
    assert found["findings"] == [] and "images" not in str(found["not_looked_at"])


def test_a_plugin_by_a_link(node):
    """Slurm follows links: so does the doctor, to a plugin that is as good as before."""
    node.run(f"ln -s {PLUGIN} /tmp/spank_singularity.so; echo required /tmp/spank_singularity.so >/etc/slurm/plugstack.conf")
    try:
        found = diagnose(node)
    finally:
        node.run("rm /tmp/spank_singularity.so; cp -a /root/good/. /etc/slurm")
    assert found["findings"] == []


def test_a_plugin_for_another_slurm(node):
    path = node.run(f"echo {PLUGIN}").stdout.strip()
    node.run(f"cp {path} /shared/spank_singularity.so; echo required /shared/spank_singularity.so >/etc/slurm/plugstack.conf")
    outside = f"/proc/{node.pid()}/root/shared/spank_singularity.so"
    try:
        with open(outside, "r+b") as file:
            elf = ELFFile(file)
            (symbol,) = elf.get_section_by_name(".dynsym").get_symbol_by_name("plugin_version")
            (offset,) = elf.address_offsets(symbol["st_value"])
            file.seek(offset)
            file.write((0x160508).to_bytes(4, "little"))
        found = diagnose(node)
    finally:
        node.run("rm /shared/spank_singularity.so; cp -a /root/good/. /etc/slurm")
    assert names(found) == {"plugin-version"} and "for Slurm 22.05.8" in found["findings"][0]["what"]


def test_somebody_else_listens(node):
    import subprocess

    impostor = subprocess.Popen(node.command(["bash", "-c", f"exec {IMPOSTOR}"], user="alice"), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, text=True)
    try:
        assert impostor.stdout.readline() == "up\n"
        found = diagnose(node, "--socket=/tmp/impostor")
    finally:
        impostor.kill()
        impostor.wait()
        node.run("rm -f /tmp/impostor")
    assert names(found) == {"agent-owner"} and "uid 1001" in found["findings"][0]["what"]


def test_an_agent_whose_file_was_replaced(node):
    node.run("cp -p /usr/sbin/singularityd /usr/sbin/new && mv /usr/sbin/new /usr/sbin/singularityd")
    assert names(diagnose(node)) == {"agent-replaced"}
    node.run("kill $(cat /run/agent.pid)")
    wait_for(lambda: node.run("test -d /proc/$(cat /run/agent.pid)", check=False).returncode != 0, 15, "singularityd to end")
    node.run("rm -f /run/singularity/agent.sock")
    start_agent(node)
    assert names(diagnose(node)) == set()


def test_slurm_conf(cluster, node):
    """All at once, because slurmctld must read them: each must be found beside the others."""
    good = dict(cluster.spec.conf)
    cluster.write_conf(ProctrackType="proctrack/linuxproc", TaskPlugin="task/affinity", SelectType="select/cons_tres",
                       PriorityType="priority/multifactor", JobSubmitPlugins=None, JobRequeue="0", AuthInfo=None, KillWait="30", PreemptMode="CANCEL",
                       UnkillableStepTimeout="50", PreemptParameters="send_user_signal")
    with open(os.path.join(cluster.directory, "conf/slurm.conf"), "a", encoding="utf-8") as file:
        file.write("NodeName=n9 NodeAddr=10.77.0.9 CPUs=1 State=DOWN\n")
    node.run("sed -i /address/d /etc/slurm/singularity.yaml; sed -i s/agents:// /etc/slurm/singularity.yaml")
    restart(cluster)
    found = diagnose(node)
    assert names(found) == {"proctrack", "task-plugin", "select-type", "priority-type", "job-submit", "job-requeue", "requeue-delay", "kill-wait",
                            "preempt-mode", "unkillable-step", "preempt-signal", "store-shared", "agents-address"}
    severities = [finding["severity"] for finding in found["findings"]]
    assert severities == sorted(severities), "errors come first"
    cluster.spec.conf = good
    cluster.write_conf()
    restart(cluster)
    assert diagnose(node)["findings"] == []


def restart(cluster):
    cluster.stop_daemon("ctl", "slurmctld")
    cluster.start_daemon("ctl", "slurmctld")
    cluster.wait_controller()
