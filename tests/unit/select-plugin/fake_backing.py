#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Emits a plugin to stand behind one of ours: every operation of a release notes its own name and its arguments' sum.

Usage: fake_backing.py OPERATIONS.json RELEASE OUTPUT.cpp [LEFT-OUT-OPERATION]
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "select-plugin" / "operations"))
from generate import operations_of, parameter_name, parameter_type  # noqa: E402


def main():
    table = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    left_out = sys.argv[4:]
    lines = [
        "// Made by fake_backing.py; do not edit.",
        '#include <cstdint>\n#include <sys/types.h>\n#include "fake_host.hpp"\n#include "opaque.hpp"\n',
        "using namespace singularity::slurm;\nusing singularity::test::note;\n",
        'extern "C" {',
    ]
    for operation in operations_of(sys.argv[2], table):
        if operation["name"] in left_out:
            continue
        numbers = [parameter_name(parameter) for parameter in operation["parameters"]
                   if "*" not in parameter and "double" not in parameter]
        pointers = [parameter_name(parameter) for parameter in operation["parameters"] if "*" in parameter]
        # Unsigned, because one test calls every operation without arguments, and sums what happens to lie there.
        total = " + ".join([f"static_cast<unsigned long>({name})" for name in numbers] +
                           [f"reinterpret_cast<unsigned long>({name})" for name in pointers] + ["0UL"])
        returns = operation["returns"]
        value = {"void": ""}.get(returns, "nullptr" if "*" in returns else "7")
        parameters = ", ".join(f"[[maybe_unused]] {parameter_type(parameter)} {parameter_name(parameter)}"
                               for parameter in operation["parameters"])
        lines.append(f'__attribute__((visibility("default"))) {returns} {operation["name"]}({parameters}) '
                     f'{{ note("{operation["name"]}", static_cast<long>({total})); return {value}; }}')
    lines.append("}")
    Path(sys.argv[3]).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
