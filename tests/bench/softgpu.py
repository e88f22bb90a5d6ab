# SPDX-License-Identifier: GPL-2.0-or-later
"""How fast the software GPU's engine runs kernels, on one host thread."""

import json
import statistics

import proxied

RUNS = 5
# Figure: (name that the program gives, what it is)
KERNELS = {
    "matrix_product_per_s": ("matrix_product", "tiled matrix product in shared memory"),
    "reduction_per_s": ("reductionIf", "block reduction with warp shuffles"),
    "elementwise_per_s": ("gelu", "elementwise kernel"),
}
NEEDS = ("singularity-softgpu-bench", "softgpu_images")
FIGURES = {figure: f"{text}, thread-instructions per second and core, median of {RUNS} (aim 1e8)"
           for figure, (_, text) in KERNELS.items()}


def run(say):
    command = [proxied.program("proxy", "softgpu", "singularity-softgpu-bench"),
               proxied.program("tests", "unit", "proxy-softgpu", "algorithms.90.ptx"), "--json"]
    taken = {figure: [] for figure in KERNELS}
    for index in range(RUNS):
        say(f"run {index + 1} of {RUNS}")
        measured = json.loads(proxied.run(command, None))
        for figure, (name, _) in KERNELS.items():
            taken[figure].append(measured[name])
    return {figure: statistics.median(values) for figure, values in taken.items()}
