# SPDX-License-Identifier: GPL-2.0-or-later
import os
import sys

import pytest
from virtualcluster.cluster import CHECKOUT

sys.path.insert(0, os.path.dirname(__file__))

from slurm_host import SlurmHost  # noqa: E402

BUILD = os.path.abspath(os.environ.get("CTEST_BINARY_DIR", os.path.join(CHECKOUT, "build", "release")))
CUDA = os.environ.get("CUDA_HOME", "/usr/local/cuda")
PROGRAMS = {"/opt/train_data": os.path.join(BUILD, "workloads", "train_data"),
            "/usr/local/cuda/lib64/libcudart.so.13": os.path.join(CUDA, "lib64", "libcudart.so.13")}


@pytest.fixture(scope="module")
def stock():
    with SlurmHost(ours=False) as host:
        yield host
