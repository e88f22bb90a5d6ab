# SPDX-License-Identifier: GPL-2.0-or-later
"""The machine itself, with Slurm and nothing of this project: what the other tests take for granted."""

import pytest
from virtualcluster.errors import ClusterError

OPEN = "for d in /dev/nvidia0 /dev/nvidia1; do (exec <$d) 2>&1 | sed 's/.*: //'; done"
NO_DEVICE, FORBIDDEN = "No such device or address", "Operation not permitted"  # there is no driver behind these nodes


def test_it_is_a_host_with_the_unified_hierarchy_alone(stock):
    assert stock.run(["stat", "-f", "-c", "%T", "/sys/fs/cgroup"]).stdout.strip() == "cgroup2fs"
    assert stock.run(["systemctl", "is-system-running"], check=False).stdout.strip() == "running"
    assert "24.11" in stock.run(["sinfo", "--version"]).stdout


def test_commands_have_their_user_and_their_end(stock):
    assert stock.run("id -un; pwd; cat; exit 3", user="alice", check=False, stdin="given").stdout == "alice\n/home/alice\ngiven"
    with pytest.raises(ClusterError, match="took over 1 s; so far: begun"):
        stock.run("echo begun; sleep 1000", timeout=1)
    assert stock.run(["true"]).returncode == 0


def test_tasks_are_where_slurm_puts_them(stock):
    shown = stock.slurm("srun", "-n2", "--mem=100", "sh", "-c", "cat /proc/self/cgroup; nproc", user="alice").split("\n")
    assert sorted(line.rpartition("/")[2] for line in shown if line.startswith("0::/system.slice/")) == ["task_0", "task_1"], shown
    assert shown.count("1") == 2, shown  # processors


def test_devices_are_filtered(stock):
    assert stock.run(OPEN).stdout.split("\n")[:2] == [NO_DEVICE, NO_DEVICE]
    for gpus, seen in (([], [FORBIDDEN, FORBIDDEN]), (["--gres=gpu:1"], [NO_DEVICE, FORBIDDEN]), (["--gres=gpu:2"], [NO_DEVICE, NO_DEVICE])):
        assert stock.slurm("srun", "--mem=100", *gpus, "sh", "-c", OPEN, user="alice").split("\n") == seen


def test_memory_is_limited(stock):
    hungry = ["srun", "--mem=60", "/usr/bin/python3", "-c", "x = bytearray(150 << 20)"]
    found = stock.run(hungry, user="alice", check=False, timeout=120)
    assert found.returncode != 0 and "Out Of Memory" in found.stderr, found
