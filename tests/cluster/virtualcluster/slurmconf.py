# SPDX-License-Identifier: GPL-2.0-or-later
"""The configuration files of a virtual cluster's Slurm, as text."""

CONTROLLER = "ctl"


def slurm_conf(spec):
    settings = {
        "ClusterName": "virtual",
        "SlurmctldHost": CONTROLLER,
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        "StateSaveLocation": "/var/lib/slurm/slurmctld",
        "SlurmdSpoolDir": "/var/lib/slurm/slurmd",
        "SlurmctldPidFile": "/run/slurmctld.pid",
        "SlurmdPidFile": "/run/slurmd.pid",
        "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
        "SlurmdLogFile": "/var/log/slurm/slurmd.log",
        "SlurmctldDebug": "debug",
        "SlurmdDebug": "verbose",
        "ProctrackType": "proctrack/cgroup",
        "TaskPlugin": "task/cgroup",
        "JobAcctGatherType": "jobacct_gather/cgroup",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "PriorityType": "priority/multifactor",
        "GresTypes": "gpu",
        "MpiDefault": "none",
        # A node may claim more processors and GPUs than the machine under it has.
        "SlurmdParameters": "config_overrides",
        "ReturnToService": "2",
        "SlurmdTimeout": "20",
        "InactiveLimit": "0",
        "KillWait": "5",
        "MinJobAge": "300",
        "SchedulerParameters": "sched_interval=5,bf_interval=5",
        "DefMemPerCPU": "100",
        "PlugStackConfig": "/etc/slurm/plugstack.conf",
    }
    if spec.accounting:
        settings.update({
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": CONTROLLER,
            "AccountingStorageEnforce": "associations,limits,qos",
            "AccountingStorageTRES": "gres/gpu",
            "PreemptType": "preempt/qos",
            "PreemptMode": "REQUEUE",
        })
    settings.update(spec.conf)
    lines = [f"{key}={value}" for key, value in settings.items() if value is not None]
    gres = f" Gres=gpu:{spec.gpus}" if spec.gpus else ""
    lines.append(
        f"NodeName=n[1-{spec.nodes}] CPUs={spec.cpus} RealMemory={spec.memory_mb}{gres} State=UNKNOWN"
    )
    lines += spec.partitions or ["PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"]
    return "\n".join(lines) + "\n"


def gres_conf(spec):
    if not spec.gpus:
        return ""
    devices = "/dev/nvidia0" if spec.gpus == 1 else f"/dev/nvidia[0-{spec.gpus - 1}]"
    return f"NodeName=n[1-{spec.nodes}] Name=gpu File={devices}\n"


# Processors are not constrained: a node claims more of them than there are.
CGROUP_CONF = """CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainDevices=yes
ConstrainRAMSpace=yes
"""

SLURMDBD_CONF = f"""AuthType=auth/munge
DbdHost={CONTROLLER}
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
"""

# What one accounting database holds on every cluster: QOS with priority, and whom it may preempt.
QOS = (("basic", 10, ""), ("standard", 100, "basic"), ("premium", 1000, "basic,standard"))
USERS = ("alice", "bob")
ACCOUNT = "research"
