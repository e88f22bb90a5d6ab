# SPDX-License-Identifier: GPL-2.0-or-later
"""A virtual machine that is controller and node of a Slurm of its own, with CgroupPlugin=cgroup/v2."""

import os
import shutil
import subprocess
import tempfile

from machine import PROCESSORS, Machine
from virtualcluster import slurmconf
from virtualcluster.cluster import CHECKOUT, Spec
from virtualcluster.commands import SlurmCommands
from virtualcluster.errors import ClusterError, wait_for
from virtualcluster.host import GPU_MAJOR

NAME = "n1"
GPUS = 2
CGROUP_CONF = """CgroupPlugin=cgroup/v2
ConstrainDevices=yes
ConstrainRAMSpace=yes
ConstrainCores=yes
"""
CONF = {
    "SlurmctldHost": NAME,
    "TaskPlugin": "task/cgroup,task/affinity",
    "JobAcctGatherFrequency": "task=1",
    # Its processors are real ones.
    "SlurmdParameters": None,
    # A program takes 25 times as long to start as on the machine that emulates this one.
    "MessageTimeout": "30",
    "UnkillableStepTimeout": "150",
    "SlurmdTimeout": "120",
    "KillWait": "60",
    # A requeued job may start again after this many seconds and one.
    "AuthInfo": "cred_expire=20",
}
PLUGINS = {"SelectType": "select/cons_tres_singularity", "PriorityType": "priority/singularity", "JobSubmitPlugins": "singularity"}
YAML = "agents:\n  metrics: /run/agent.prom\nstore:\n  directory: /shared/store\nelastic:\n  check_after: 2s\n"
AGENT_LOG = ["journalctl", "--unit", "singularityd", "--no-pager", "--output", "cat"]


class SlurmHost(Machine, SlurmCommands):
    def __init__(self, programs=(), ours=True):
        """ours: with this project's programs, as they are staged for installation. programs: {path in the machine: path here}."""
        super().__init__()
        self.controller = self
        self.nodes = [self]
        self.name = NAME
        try:
            self.spec = Spec(nodes=1, gpus=GPUS, cpus=PROCESSORS, memory_mb=800, conf={**CONF, **(PLUGINS if ours else {})},
                             plugstack="required spank_singularity.so\n" if ours else "", singularity_yaml=YAML if ours else "")
            self._install(dict(programs), ours)
            self.start()
        except BaseException:
            self.close()
            raise

    def host(self, name):
        if name not in (NAME, slurmconf.CONTROLLER):
            raise ClusterError(f"there is one host, {NAME}, and no '{name}'")
        return self

    def _install(self, programs, ours):
        with tempfile.TemporaryDirectory(dir=self.directory) as tree:
            if ours:
                stage = os.path.join(CHECKOUT, "build", "stage-24.11")
                if not os.path.isdir(stage):
                    raise ClusterError(f"nothing is built for Slurm 24.11 ({stage}): run ./dev test cgroup2")
                shutil.copytree(stage, tree, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("doc", "include"))
            for target, source in programs.items():
                os.makedirs(os.path.dirname(tree + target), exist_ok=True)
                shutil.copy(source, tree + target)
            # Symbols would be most of what is carried.
            files = [os.path.join(where, name) for where, _, names in os.walk(tree) for name in names]
            for path in files:
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF" and not os.path.islink(path):
                        subprocess.run(["strip", "--strip-debug", path], check=True, timeout=60)
            etc = os.path.join(tree, "etc/slurm")
            os.makedirs(etc)
            for name, text in (("slurm.conf", slurmconf.slurm_conf(self.spec)), ("gres.conf", slurmconf.gres_conf(self.spec)),
                               ("cgroup.conf", CGROUP_CONF), ("plugstack.conf", self.spec.plugstack),
                               ("singularity.yaml", self.spec.singularity_yaml)):
                if text:
                    with open(os.path.join(etc, name), "w", encoding="utf-8") as file:
                        file.write(text)
            self.bring(tree)

    def start(self):
        gpus = "; ".join(f"mknod -m 666 /dev/nvidia{number} c {GPU_MAJOR} {number}" for number in range(GPUS))
        self.run(f"{gpus}; install -d -m 700 /shared/store")
        ours = ["singularityd"] if self.spec.singularity_yaml else []
        self.run(["systemctl", "daemon-reload"])
        self.run(["systemctl", "start", *ours, "slurmctld", "slurmd"], timeout=120)
        self.wait_idle()

    def wait_idle(self):
        wait_for(lambda: self.slurm("sinfo", "-h", "-o", "%T", check=False) == "idle", 90, "the node to be idle")

    def agent_log(self):
        return self.run(AGENT_LOG).stdout
