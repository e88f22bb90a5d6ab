# SPDX-License-Identifier: GPL-2.0-or-later
"""Starting the daemons of a host, each as its package's unit file would, and waiting until they serve."""

import contextlib
import os
import re

from .errors import ClusterError, wait_for
from .slurmconf import ACCOUNT, QOS, USERS

# name: (program and arguments, log on the host)
DAEMONS = {
    "slurmctld": (["slurmctld", "-D"], "/var/log/slurm/slurmctld.out"),
    "slurmd": (["slurmd", "-D"], "/var/log/slurm/slurmd.out"),
    "slurmdbd": (["slurmdbd", "-D"], "/var/log/slurm/slurmdbd.out"),
    # Those of this project write no pid file: systemd asks for none.
    "singularity-planner": (["sh", "-c", "echo $$ >/run/singularity-planner.pid; exec singularity-planner"], "/var/log/singularity-planner.log"),
    "singularityd": (["sh", "-c", "echo $$ >/run/singularityd.pid; exec singularityd"], "/var/log/singularityd.log"),
}
PID_FILES = {name: f"/run/{name}.pid" for name in DAEMONS}

UNITS = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..", "slurm-conf"))
PREPARE = """
mkdir -p /run/munge /var/log/munge /var/log/slurm /var/lib/slurm/slurmctld /var/lib/slurm/slurmd
chown munge /run/munge /var/log/munge /var/lib/munge
chown slurm /var/log/slurm /var/lib/slurm /var/lib/slurm/slurmctld
chmod 755 /run/munge; chmod 700 /var/log/munge /var/lib/munge
"""


def start_munge(host):
    host.run(PREPARE)
    host.daemon(["munged", "--foreground"], "/var/log/munge/munged.out", "munge")
    wait_for(lambda: os.path.exists(_seen_from_outside(host, "/run/munge/munge.socket.2")), 10, f"munged on {host.name}")


def _seen_from_outside(host, path):
    return f"/proc/{host.pid()}/root{path}"


def confinement(name):
    """The command that gives up what the unit of this project's daemon does not let it have; nothing for those of others."""
    path = os.path.join(UNITS, f"{name}.service")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        unit = file.read()
    capabilities = re.findall(r"\bCAP_(\w+)", " ".join(re.findall(r"^CapabilityBoundingSet=.*$", unit, re.MULTILINE)))
    assert capabilities and "NoNewPrivileges=yes" in unit, path
    kept = ",".join(f"+{one.lower()}" for one in capabilities)
    return ["setpriv", "--no-new-privs", f"--bounding-set=-all,{kept}", "--inh-caps=-all", "--"]


def start(host, name, env=None):
    """Those of this project have written their pid file when this returns: whoever stops one at once finds it."""
    argv, log = DAEMONS[name]
    pid_file = _seen_from_outside(host, PID_FILES[name]) if argv[0] == "sh" else None
    if pid_file:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(pid_file)
    host.daemon([*confinement(name), *argv], log, env=env)
    if pid_file:
        wait_for(lambda: os.path.exists(pid_file) and os.path.getsize(pid_file) > 0, 20, f"{name} on {host.name} to begin")


def start_agent(host, env=None):
    start(host, "singularityd", env)
    wait_for(lambda: host.run(["singularityctl", "ps"], check=False).returncode == 0, 20, f"the node agent of {host.name}")


def start_database(host):
    host.run("mkdir -p /run/mysqld && chown mysql:mysql /run/mysqld /var/lib/mysql")
    host.daemon(
        ["mariadbd", "--no-defaults", "--user=mysql", "--datadir=/var/lib/mysql", "--socket=/run/mysqld/mysqld.sock",
         "--skip-networking", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M",
         "--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900"],
        "/var/log/mariadbd.out", "root",
    )
    client = ["mariadb", "--no-defaults", "--socket=/run/mysqld/mysqld.sock", "--batch"]
    wait_for(lambda: host.run([*client, "-e", "select 1"], check=False).returncode == 0, 30, "mariadbd on ctl")
    host.run(client, stdin=(
        "create database if not exists slurm_acct_db;"
        "create user if not exists slurm@localhost identified via unix_socket;"
        "grant all on slurm_acct_db.* to slurm@localhost;"
    ))
    start(host, "slurmdbd")
    wait_for(lambda: host.run(["sacctmgr", "-n", "show", "cluster"], check=False).returncode == 0, 30, "slurmdbd on ctl")


def fill_database(host, cluster_name):
    """The cluster, its QOS and users; does nothing where they exist, as after a reboot of the controller."""
    if "premium" in host.run(["sacctmgr", "-n", "show", "qos", "format=name"]).stdout:
        return
    commands = [f"add cluster {cluster_name}", f"add account {ACCOUNT} cluster={cluster_name}"]
    for name, priority, preempts in QOS:
        commands.append(f"add qos {name} priority={priority}" + (f" preempt={preempts}" if preempts else ""))
    names = ",".join(name for name, _, _ in QOS)
    for user in ("root", *USERS):
        qos = f"qos={names},normal defaultqos=standard"
        commands.append(f"add user {user} account={ACCOUNT} cluster={cluster_name} {qos}")
    for command in commands:
        host.run(["sacctmgr", "-i", *command.split()])


def pid_of(host, name):
    """The daemon's process as numbered on the host, from its pid file; None when it does not run."""
    found = host.run(f"pid=$(cat {PID_FILES[name]} 2>/dev/null) && kill -0 $pid 2>/dev/null && echo $pid", check=False)
    return int(found.stdout) if found.stdout.strip() else None


def stop(host, name, signal="TERM", seconds=30):
    pid = pid_of(host, name)
    if pid is None:
        raise ClusterError(f"{name} does not run on {host.name}")
    host.run(["kill", f"-{signal}", str(pid)])
    wait_for(lambda: host.run(["kill", "-0", str(pid)], check=False).returncode != 0, seconds,
             f"{name} on {host.name} (process {pid}) to end after SIG{signal}")
