# SPDX-License-Identifier: GPL-2.0-or-later
"""The cables and the switch: one veth pair per host to a bridge in the cluster's own network namespace."""

import contextlib
import subprocess

from .anchor import BRIDGE
from .errors import ClusterError

NETWORK = "10.77.0"  # of every cluster: no two of them share a network namespace, and none reaches the machine's


def address(index):
    return f"{NETWORK}.{index}"


def mac(ip_address):
    """A host keeps its own when it is booted again, as machines do: its neighbours remember it."""
    return ":".join(f"{number:02x}" for number in (2, 0, *map(int, ip_address.split("."))))


def _ip(pid, commands):
    """Runs ip(8) commands in the network namespace of process pid."""
    result = subprocess.run(
        ["nsenter", f"--target={pid}", "--net", "--", "ip", "-batch", "-"],
        input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=20, check=False,
    )
    if result.returncode != 0:
        raise ClusterError(f"ip {commands}: {result.stderr.strip()}")


def plug(anchor_pid, host_pid, name, ip_address):
    port = f"p-{name}"
    # Of a host that was killed: the kernel takes its time to remove it.
    with contextlib.suppress(ClusterError):
        _ip(anchor_pid, [f"link del {port}"])
    _ip(anchor_pid, [
        f"link add {port} type veth peer name eth0 address {mac(ip_address)} netns {host_pid}",
        f"link set {port} master {BRIDGE} up",
    ])
    _ip(host_pid, ["link set lo up", f"addr add {ip_address}/24 dev eth0", "link set eth0 up"])


def partition(anchor_pid, name):
    """The cable stays plugged, but the switch forwards nothing: packets vanish, as with a broken switch port."""
    _ip(anchor_pid, [f"link set p-{name} nomaster"])


def heal(anchor_pid, name):
    _ip(anchor_pid, [f"link set p-{name} master {BRIDGE}"])
