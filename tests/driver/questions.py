# SPDX-License-Identifier: GPL-2.0-or-later
"""What the libraries are asked: everything that the toolkit's headers declare, and what only NVIDIA's own libraries ask for."""

import os
import sys

from virtualcluster.cluster import CHECKOUT

sys.path.insert(0, os.path.join(CHECKOUT, "proxy", "driver-api", "generator"))

import cheader  # noqa: E402
import versions  # noqa: E402

INCLUDE = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")
NOT_CALLED = {"cuInit"}  # asked by itself
ERROR_CODES = range(-2, 1005)  # CUDA_ERROR_UNKNOWN is 999
FLAGS = [0, 1, 2, 3]
# Asked for by cudart, cuBLAS, cuDNN, cuFFT and tools; the last two by nobody.
TABLES = ["6bd5fb6c-5bf4-e74a-8987-d93912fd9df9", "a094798c-2e74-2e74-93f2-0800200c0a66", "42d85a81-23f6-cb47-8298-f6e78a3aecdc",
          "c693336e-1121-df11-a8c3-68f355d89593", "263e8860-7cd2-6143-92f6-bbd5006dfa7e", "d4082055-bde6-704b-8d34-ba123c66e1f2",
          "21318c60-9714-3248-8ca6-41ff7324c8f2", "1734dc26-800d-4745-8726-c0f1e7dd8bca", "6e163fbe-b958-444d-835c-e182aff1991e",
          "00000000-0000-0000-0000-000000000000", "ffffffff-0000-0000-0000-000000000001"]
# Names, versions and flags that no program should ask for.
ODD = [("cuInit", 12000, 0), ("cuInit", 12000, 4), ("cuInit", 12000, 6), ("cuInit", 12000, 1 << 32), ("cuInit", 12000, 1 << 63),
       ("cuLaunchKernel", 3000, 0), ("cuNothing", 12000, 0), ("cuNothing", 12000, 8), ("", 12000, 0), (" cuInit", 12000, 0), ("CUINIT", 12000, 0),
       ("cuMemAlloc_v2", 12000, 0), ("cuMemcpy_ptds", 12000, 2), ("cudaMalloc", 12000, 0)]


class Interface:
    """What the headers declare."""

    def __init__(self):
        self.header = cheader.read(["c++"], INCLUDE)
        self.versions = versions.build(self.header)
        self.since = {row.symbol: row.version for row in self.versions}
        self.names = sorted({row.name for row in self.versions})

    def questions(self, driver_version):
        """As ask.py takes them. driver_version: of the driver that is the measure."""
        known = sorted({row.version for row in self.versions if row.version <= driver_version})
        return {"symbols": sorted(self.header.functions), "names": self.names, "flags": FLAGS, "codes": list(ERROR_CODES), "tables": TABLES, "odd": ODD,
                "versions": [0, 1, *known], "later": [driver_version + 1, self.header.version, self.header.version + 1, 1 << 30, -1],
                "functions": {symbol: [bool(parameter.pointers) for parameter in function.parameters]
                              for symbol, function in sorted(self.header.functions.items()) if symbol not in NOT_CALLED}}

    def symbols_later_than(self, version):
        return {symbol for symbol, since in self.since.items() if since > version}

    def names_with_later(self, version):
        """Names that have got another function, or their first, after a version."""
        return {row.name for row in self.versions if row.version > version}

    def names_later_than(self, version):
        return set(self.names) - {row.name for row in self.versions if row.version <= version}
