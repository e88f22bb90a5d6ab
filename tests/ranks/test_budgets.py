# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent has a descriptor of each rank of a job as long as it remembers the job: each user has a share."""

HOSTS = {"per_user": "ranks: 4"}


def test_ranks(hosts):
    """Jobs that have ended count until they are destroyed. Others are not disturbed, and neither is what runs."""
    job = hosts.detach("n1", "n1,n2", "true", options=("--ranks-per-node", "2"))
    refused = hosts.ctl("n1", "run", "--detach", "--hosts", "n1", "--", "true", check=False)
    said = ("uid 1001 has 4 ranks of jobs that this host coordinates already, and per_user.ranks in singularity.yaml allows 4: "
            "destroy jobs that have ended")
    assert refused.returncode != 0 and said in refused.stderr, refused.stderr
    # Of another user, and at another host.
    assert hosts.run("n1", "n1,n2", "true", user="bob", options=("--ranks-per-node", "2")).returncode == 0
    assert hosts.run("n2", "n1", "true").returncode == 0
    too_large = hosts.ctl("n1", "run", "--detach", "--hosts", "n1,n2", "--ranks-per-node", "3", "--", "true", user="bob", check=False)
    assert "uid 1002 has 0 ranks of jobs that this host coordinates already and wants 6 more" in too_large.stderr, too_large.stderr
    # Also an agent that comes again counts them.
    hosts.kill_agent("n1")
    hosts.start_agent("n1")
    again = hosts.ctl("n1", "run", "--detach", "--hosts", "n1", "--", "true", check=False)
    assert said in again.stderr, again.stderr
    hosts.ctl("n1", "destroy", job)
    assert hosts.run("n1", "n1", "true").returncode == 0
