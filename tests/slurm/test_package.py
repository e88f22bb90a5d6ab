# SPDX-License-Identifier: GPL-2.0-or-later
"""The .deb on stock hosts, by the steps of slurm-conf/README.md, and its removal."""

import glob
import os
import shutil
import subprocess

import pytest
from virtualcluster.cluster import CHECKOUT

EXAMPLES = "/usr/share/doc/slurm-singularity/examples"


@pytest.fixture(scope="module")
def package(release):
    if release != "24.11":
        pytest.skip("the package is made in the root that builds everything, for its Slurm 24.11")
    directory = os.path.join(CHECKOUT, "build/package")
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run(["cpack", "--config", "build/release/CPackConfig.cmake", "-B", directory], cwd=CHECKOUT, check=True,
                   stdout=subprocess.DEVNULL)
    (path,) = glob.glob(os.path.join(directory, "*.deb"))
    return path


def settings(text):
    return dict(line.split("=", 1) for line in text.split("\n") if "=" in line and not line.startswith("#"))


def test_install_and_remove(make, package):
    cluster = make(plugin=False, conf={"SelectType": "select/cons_tres", "PriorityType": "priority/multifactor"}, plugstack="")
    assert cluster.controller.run(["sbatch", "--singularity-elastic=1-2", "--wrap=true"], check=False).returncode != 0

    for host in cluster.hosts.values():
        host.run(["dpkg", "-i", package])
    read = cluster.controller.run
    # Elastic steps of several hosts need agents that can be called.
    read(f"sed 's/^  address: \"\"/  address: \"0.0.0.0\"/' {EXAMPLES}/singularity.yaml >/etc/slurm/singularity.yaml")
    read(["singularityctl", "config", "check"])
    cluster.spec.plugstack = read(["cat", f"{EXAMPLES}/plugstack.conf.fragment"]).stdout
    cluster.write_conf(**settings(read(["cat", f"{EXAMPLES}/slurm.conf.fragment"]).stdout))
    cluster.restart_slurm()
    assert "select/cons_tres_singularity" in cluster.slurm("scontrol", "show", "config")
    cluster.start_agents()
    job = cluster.submit("-N2", "--singularity-elastic=2-8", "-o", "/shared/out", "--wrap=srun printenv SINGULARITY_ELASTIC")
    cluster.wait_job(job)
    assert read(["cat", "/shared/out"]).stdout == "2-8\n2-8\n"

    for host in cluster.nodes:
        cluster.stop_daemon(host.name, "singularityd")
        host.run(["rm", "/var/log/singularityd.log"])
    cluster.spec.plugstack = ""
    cluster.write_conf(SelectType="select/cons_tres", PriorityType="priority/multifactor", JobSubmitPlugins=None)
    cluster.restart_slurm()
    for host in cluster.hosts.values():
        host.run(["dpkg", "-r", "slurm-singularity"])
        # sympy, which PyTorch needs, knows singularities of its own; this checkout is in /usr/src.
        left = host.run("find / -xdev -name '*singularity*' -not -path '/var/*' -not -path '/proc/*' -not -path '*/sympy/*' "
                        "-not -path '/usr/src/*'")
        assert left.stdout == ""
    cluster.wait_job(cluster.submit("-N2", "--wrap=srun true"))
