# SPDX-License-Identifier: GPL-2.0-or-later
"""A real multi-node Slurm on one machine: each host is a set of namespaces over a shared root directory."""

from .cluster import Cluster, Spec
from .errors import ClusterError

__all__ = ["Cluster", "ClusterError", "Spec"]
