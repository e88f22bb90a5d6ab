# SPDX-License-Identifier: GPL-2.0-or-later
"""What programs can ask for: functions of the driver API that are refused, by reason (to stderr). Counted, not measured: the same everywhere."""

import collections
import re

import proxied

NEEDS = ("singularity_driver_api_generated",)
FIGURES = {
    "driver_functions": "functions of the toolkit's driver API, without their per-thread variants",
    "driver_functions_refused": "of these, those that return CUDA_ERROR_NOT_SUPPORTED through the proxy (falls)",
}
ROW = re.compile(r"^\| (cu\w+) \| [\d.]+ \| (\w+) \| \w* \| (.*?) ?\|$", re.M)


def run(say):
    with open(proxied.program("proxy", "driver-api", "generated", "driver-api.md"), encoding="utf-8") as page:
        rows = ROW.findall(page.read())
    refused = collections.Counter(reason for _, kind, reason in rows if kind == "unsupported")
    for reason, count in refused.most_common():
        say(f"{count:4} refused: {reason}")
    return {"driver_functions": len(rows), "driver_functions_refused": refused.total()}
