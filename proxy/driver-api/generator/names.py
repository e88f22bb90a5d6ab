# SPDX-License-Identifier: GPL-2.0-or-later
"""Names in generated C++."""

from versions import split_symbol


def camel(symbol):
    """cuMemcpyHtoD_v2_ptds -> MemcpyHtoDV2Ptds. Never a name that cuda.h's macros (#define cuMemAlloc ...) would change."""
    name, number, suffix = split_symbol(symbol)
    name = name.removeprefix("cu")
    return name + (f"V{number}" if number > 1 else "") + suffix.removeprefix("_").capitalize()
