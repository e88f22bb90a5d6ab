# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts with a node agent each, and what jobs leave on them."""

import json
import os
import signal
import subprocess
import sys

from virtualcluster import Cluster
from virtualcluster.errors import wait_for

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "node"))
from virtualnode import Connection  # noqa: E402

CUT_JOB = 90  # spank/agent/protocol/agent_messages.hpp
TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = os.path.abspath(os.environ.get("CTEST_BINARY_DIR", os.path.join(TOP, "build", "release")))
PATIENCE_OF_AGENTS = 6  # seconds
PATIENCE = 60  # for whatever does not end by itself
LOG = "/var/log/singularityd.log"
METRICS = "/run/agent.prom"
CTL = os.path.join(BUILD, "spank", "singularityctl")


class RankHosts:
    """Hosts n1, n2, ...; n0 of Slurm's harness, ctl, has an agent as well."""

    def __init__(self, nodes, patience=PATIENCE_OF_AGENTS, per_user="", network="", variables=None):
        yaml = f"agents:\n  address: 0.0.0.0\n  patience: {patience}s\n  metrics: {METRICS}\n  run_without_slurm: true\nstore:\n  directory: /shared/store\n"
        yaml += f"per_user: {{{per_user}}}\n" if per_user else ""
        yaml += f"network: {{{network}}}\n" if network else ""
        self.cluster = Cluster.up(nodes=nodes, gpus=0, plugin=False, daemons=False, singularity_yaml=yaml, owner=os.getpid())
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.variables = {"SINGULARITY_LIBDIR": BUILD, **(variables or {})}
        self.prepare()
        for name in self.names:
            self.start_agent(name)

    def prepare(self):
        """Before there are agents."""

    def host(self, name):
        return self.cluster.host(name)

    def start_agent(self, name):
        variables = " ".join(f"{name}={value}" for name, value in self.variables.items())
        script = f"echo $$ >/run/agent.pid; exec env {variables} {BUILD}/spank/singularityd"
        self.host(name).daemon(["sh", "-c", script], LOG)
        wait_for(lambda: self.ctl(name, "ps", check=False).returncode == 0, 20, f"the agent of {name}: {self.log(name)}")

    def agent_pid(self, name):
        """As numbered on the host."""
        return self.host(name).run(["cat", "/run/agent.pid"]).stdout.strip()

    def kill_agent(self, name, number="KILL"):
        pid = self.agent_pid(name)
        self.host(name).run(["kill", f"-{number}", pid])
        wait_for(lambda: not os.path.exists(f"/proc/{self.host(name).pid()}/root/proc/{pid}"), 20, f"the agent of {name} to be dead")

    def log(self, name):
        with open(self.host(name).upper + LOG, encoding="utf-8", errors="replace") as file:
            return file.read()

    def ctl(self, name, *arguments, user="alice", check=True, **options):
        return self.host(name).run([CTL, *arguments], user=user, check=check, **options)

    def run(self, name, hosts, *command, options=(), **more):
        """A job in the foreground, to its end."""
        return self.ctl(name, "run", "--hosts", hosts, *options, "--", *command, check=False, **more)

    def detach(self, name, hosts, *command, options=(), **more):
        return self.ctl(name, "run", "--detach", "--hosts", hosts, *options, "--", *command, **more).stdout.strip()

    def begin(self, name, hosts, *command, options=(), user="alice"):
        """A job in the foreground: the process."""
        line = self.host(name).command([CTL, "run", "--hosts", hosts, *options, "--", *command], user)
        return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)

    def connect(self, name):
        """To the agent of a host, as root."""
        return Connection(f"/proc/{self.host(name).pid()}/root/run/singularity/agent.sock")

    def ports(self, name):
        """{port: state} of the bridge of the one job that has nodes there."""
        script = "nsenter --net=$(grep -l '^singularity-net' /proc/[0-9]*/comm | sed 's/comm$/ns\\/net/') bridge -j link"
        return {port["ifname"]: port["state"] for port in json.loads(self.host(name).run(["sh", "-c", script]).stdout)}

    def jobs(self, name, user="alice"):
        """{job: line of ps}"""
        shown = self.ctl(name, "ps", user=user).stdout.partition("\nJOB ")[2]
        return {line.split()[0]: line for line in shown.splitlines()[1:] if not line.startswith(" ")}

    def state(self, name, job, user="alice"):
        return self.jobs(name, user).get(job, "- - gone").split()[2]

    def logs(self, name, job, *options, **more):
        return self.ctl(name, "logs", job, *options, **more).stdout

    def left(self, name, detached=()):
        """What there is of jobs on a host, as its kernel and its files tell."""
        host = self.host(name)
        script = ("ls /run/singularity/nodes /run/singularity/members; ls /run/singularity/jobs | sed 's/^/job /'; nft list tables | grep singularity_; "
                  "ss -Huln 'sport = :8475'; grep -l -e singularity-net -e singularity-ini /proc/[0-9]*/comm; ip -br link")
        found = host.run(script, check=False).stdout.split("\n")
        empty = {"/run/singularity/nodes:", "/run/singularity/members:", ""}
        known = empty | {f"job {one}" for one in detached}
        return [line for line in found if line not in known and not line.startswith(("lo ", "eth0@"))]

    def assert_clean(self, detached=()):
        for name in self.names:
            wait_for(lambda host=name: not self.left(host, detached), PATIENCE,
                     f"nothing to be left on {name}: {self.left(name, detached)}\n{self.log(name)}")

    def wait_reachable(self, *names):
        """Also those that have been away."""
        for name in names:
            for other in self.names:
                wait_for(lambda here=other, there=name: self.run(here, there, "true").returncode == 0, PATIENCE, f"{other} to reach {name}")

    def close(self):
        self.cluster.down()


def end(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
