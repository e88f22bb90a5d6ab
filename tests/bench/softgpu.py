# SPDX-License-Identifier: GPL-2.0-or-later
"""How fast the software GPU's engine runs kernels, on one host thread, interpreted and compiled."""

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
NEEDS = ("singularity-softgpu-bench", "singularity_softgpu_compiler", "softgpu_images")
FIGURES = {figure: f"{text}, thread-instructions per second and core, interpreted, median of {RUNS} (aim 1e8)"
           for figure, (_, text) in KERNELS.items()}
FIGURES |= {f"{name}_speedup": f"{text}, compiled over interpreted, median of {RUNS}" for name, text in KERNELS.values()}
FIGURES["matrix_product_flops"] = "tiled matrix product in shared memory, compiled, floating-point operations per second and core"
FIGURES["speedup_over_interpreter"] = "geometric mean of the above"
PRODUCT_FLOPS_PER_INSTRUCTION = 2 * 256**3 / 68681728  # of the matrices that the program multiplies


def run(say):
    command = [proxied.program("proxy", "softgpu", "singularity-softgpu-bench"),
               proxied.program("tests", "unit", "proxy-softgpu", "algorithms.90.ptx"), "--json"]
    taken = {figure: [] for figure in FIGURES}
    for index in range(RUNS):
        say(f"run {index + 1} of {RUNS}")
        measured = json.loads(proxied.run(command, None))
        speedups = []
        for figure, (name, _) in KERNELS.items():
            taken[figure].append(measured[name])
            speedups.append(measured[f"{name}_compiled"] / measured[name])
            taken[f"{name}_speedup"].append(speedups[-1])
        taken["matrix_product_flops"].append(measured["matrix_product_compiled"] * PRODUCT_FLOPS_PER_INSTRUCTION)
        taken["speedup_over_interpreter"].append(statistics.geometric_mean(speedups))
    return {figure: statistics.median(values) for figure, values in taken.items()}
