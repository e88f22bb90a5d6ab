# SPDX-License-Identifier: GPL-2.0-or-later
"""Which symbol a name means at which CUDA version.

Source of the rule: the function-pointer typedefs are named PFN_<name>_v<version>[_ptds|_ptsz], one for each ABI version
of a name; the symbols are <name>[_v<n>][_ptds|_ptsz]. Both sequences are in order of introduction, so the i-th
typedef of a name is its i-th symbol, and the two must have the same parameters.
"""

import re
from dataclasses import dataclass

from cheader import HeaderError


@dataclass(frozen=True)
class Version:
    name: str
    version: int
    symbol: str
    per_thread: bool


def split_symbol(symbol):
    """(name, n of _v<n>, per-thread suffix)"""
    match = re.fullmatch(r"(\w+?)(?:_v(\d+))?(_ptds|_ptsz)?", symbol)
    return match[1], int(match[2] or 1), match[3] or ""


def legacy_symbol(symbol):
    return re.sub(r"_pt[ds][sz]$", "", symbol)


def build(header):
    """[Version], ordered by name, then per_thread, then version."""
    typedefs = {}
    for typedef, function in header.typedefs.items():
        match = re.fullmatch(r"(\w+?)_v(\d+)(_ptds|_ptsz)?", typedef)
        if not match:
            raise HeaderError(f"{function.header}: PFN_{typedef}: expected PFN_<name>_v<version>[_ptds|_ptsz]")
        typedefs.setdefault((match[1], bool(match[3])), []).append((int(match[2]), function))
    symbols = {}
    for symbol in header.functions:
        name, number, suffix = split_symbol(symbol)
        symbols.setdefault((name, bool(suffix)), []).append((number, symbol))
    out, errors = [], []
    for key in sorted(symbols):
        ordered = [symbol for _, symbol in sorted(symbols[key])]
        found = sorted(typedefs.pop(key, []), key=lambda item: item[0])
        if len(found) != len(ordered):
            errors.append(f"{key}: typedefs {[v for v, _ in found]}, symbols {ordered}")
            continue
        for symbol, (version, function) in zip(ordered, found):
            if header.signature(function) != header.signature(header.functions[symbol]):
                errors.append(f"PFN_{function.symbol} and {symbol} have different parameters "
                              f"{header.signature(function)} {header.signature(header.functions[symbol])}")
            out.append(Version(key[0], version, symbol, key[1]))
    for key in typedefs:
        errors.append(f"{key}: typedef without a symbol")
    if errors:
        raise HeaderError("versions that do not follow the rule of versions.py:\n  " + "\n  ".join(errors))
    return out
