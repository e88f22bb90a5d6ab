# SPDX-License-Identifier: GPL-2.0-or-later
"""./dev demo: what happens to an elastic job on a two-node cluster, and that it loses nothing by it."""

import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]

import leftovers  # noqa: E402
import picture  # noqa: E402
import training  # noqa: E402
from disturbances import disturb, finish  # noqa: E402
from timeline import Timeline, say  # noqa: E402
from virtualcluster import Cluster, ClusterError  # noqa: E402
from virtualcluster.cluster import CHECKOUT  # noqa: E402

GPUS = 4
PICTURE = os.path.join(CHECKOUT, "build/demo.png")
LOGS = os.path.join(CHECKOUT, "build/demo-logs")  # of a demo that failed
CONF = {
    "SelectType": "select/cons_tres_singularity",
    "PriorityType": "priority/singularity",
    "JobSubmitPlugins": "singularity",
    "AuthInfo": "cred_expire=10",  # a requeued job need not wait for two minutes
}
YAML = "elastic:\n  checkpoint_every_least: 1s\n  look_every: 2s\nagents:\n  address: 0.0.0.0\n  patience: 10s\nstore:\n  directory: /shared/store\n"


def run(cluster, title, disturbances=None):
    """A job from its submission to its end; (what it wrote, what was seen)."""
    say(f"\n== {title}\n$ sbatch {' '.join(training.OPTIONS)} train.sh")
    job, written = training.submit(cluster)
    timeline = Timeline(cluster, job, written, GPUS)
    if disturbances:
        disturbances(cluster, timeline)
    finish(cluster, timeline)
    return written, timeline


def keep_logs(cluster):
    """Of hosts that are off as well."""
    os.makedirs(LOGS, exist_ok=True)
    for host in cluster.hosts.values():
        for name in ("log/singularityd.log", "log/slurm/slurmctld.log", "log/slurm/slurmd.log"):
            log = os.path.join(host.upper, "var", name)
            if os.path.exists(log):
                shutil.copy(log, os.path.join(LOGS, f"{host.name}-{os.path.basename(log)}"))


def show():
    say(f"A virtual cluster: 2 nodes with {GPUS} software GPUs each; real slurmctld, slurmd, slurmdbd, munge, cgroups;"
        "\nboth plugins in slurm.conf, a node agent on each node")
    cluster = Cluster.up(progress=lambda line: say(f"   {line}"), owner=os.getpid(), nodes=2, gpus=GPUS, accounting=True,
                         plugstack="required spank_singularity.so\n", conf=CONF, singularity_yaml=YAML)
    try:
        cluster.start_agents()
        say(f"\ntrain.sh, which trains a network on handwritten digits in {training.RANKS} ranks by CUDA and NCCL:\n")
        say("".join(f"   {line}\n" for line in training.SCRIPT.splitlines()))
        say("In the time line: # a GPU of this job, P one of a premium job, - of a drained node, x of one without power")
        undisturbed, _ = run(cluster, "undisturbed")
        disturbed, timeline = run(cluster, "disturbed", disturb)
        say("\n== compared")
        for line in training.compare(undisturbed, disturbed):
            say(f"   {line}")
        picture.draw(PICTURE, undisturbed, disturbed, timeline.samples, timeline.events)
        say(f"   {os.path.relpath(PICTURE, CHECKOUT)} shows loss and GPUs over time")
    except ClusterError:
        keep_logs(cluster)
        say(f"\nthe logs of all hosts are in {os.path.relpath(LOGS, CHECKOUT)}")
        raise
    finally:
        # Not earlier: the kernel gives the numbers of those that went with a host's power to others.
        namespaces = leftovers.namespaces_of(cluster)
        cluster.down()
    left = leftovers.everything(cluster, namespaces)
    if left:
        raise ClusterError(f"left behind: {left}")
    say("\nThe cluster is down; left behind: no process, mount, namespace, cgroup or file but the picture.")


try:
    show()
except ClusterError as error:
    sys.exit(f"demo: {error}")
except KeyboardInterrupt:
    sys.exit("\ndemo: interrupted; its cluster is down")
