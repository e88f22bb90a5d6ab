#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Emits what a wrapping plugin needs for the operations that one release of Slurm asks for.

Three files: NAME_operations.hpp (the names, in the order of the table of pointers), NAME_forwarders.inc (one extern "C"
function per operation) and NAME.map (the linker version script: these functions, what the loader looks for, no more).
"""
import argparse
import json
import re
import sys
from pathlib import Path

# What the loader (slurm's common/plugin.c) and the select interface look for beside the operations.
LOADER_SYMBOLS = ["plugin_name", "plugin_type", "plugin_version", "init", "fini"]


class Refused(Exception):
    """What is wrong with the input, in one sentence."""


def series(text):
    match = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)?", text)
    if not match:
        raise Refused(f"'{text}' is not a release of Slurm: expected MAJOR.MINOR or MAJOR.MINOR.MICRO")
    return int(match[1]), int(match[2])


def operations_of(release, table):
    """The operations that this release asks for, each name once."""
    wanted = series(release)
    chosen = [operation for operation in table["operations"]
              if series(operation.get("first", "0.0")) <= wanted <= series(operation.get("last", "99.99"))]
    names = [operation["name"] for operation in chosen]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refused(f"{', '.join(twice)}: listed more than once for Slurm {release}; mend 'first' and 'last'")
    return chosen


def parameter_name(parameter):
    return re.search(r"(\w+)$", parameter)[1]


def parameter_type(parameter):
    return parameter[:-len(parameter_name(parameter))].strip()


def emit_header(name, release, table, operations):
    lines = [
        f"// Made by operations/generate.py for Slurm {release}; do not edit.",
        "// SPDX-License-Identifier: GPL-2.0-or-later",
        "#pragma once\n",
        "#include <array>\n\n#include <cstddef>\n",
        f"namespace singularity::{name}_operations {{\n",
        f'inline constexpr const char *kBacking = "{table["backing"]}";\n',
        *[f"inline constexpr std::size_t k_{operation['name']} = {index};"
          for index, operation in enumerate(operations)],
        f"inline constexpr std::size_t kCount = {len(operations)};\n",
        "inline constexpr std::array<const char *, kCount> kNames{",
        *[f'    "{operation["name"]}",' for operation in operations],
        "};\n",
        f"}} // namespace singularity::{name}_operations",
    ]
    return "\n".join(lines) + "\n"


def emit_forwarders(name, release, operations):
    lines = [
        f"// Made by operations/generate.py for Slurm {release}; do not edit.",
        "// SPDX-License-Identifier: GPL-2.0-or-later\n",
    ]
    for operation in operations:
        returns, parameters = operation["returns"], operation["parameters"]
        types = ", ".join([returns, *[parameter_type(parameter) for parameter in parameters]])
        arguments = "".join(f", {parameter_name(parameter)}" for parameter in parameters)
        call = f"plugin().forward<{types}>({name}_operations::k_{operation['name']}{arguments})"
        if "hook" in operation:
            hook_arguments = "".join(f"{argument}, " for argument in operation["hook_arguments"])
            call = f"plugin().{operation['hook']}({hook_arguments}[&] {{ return {call}; }})"
        lines.append(f"SINGULARITY_EXPORT {returns} {operation['name']}({', '.join(parameters)}) "
                     f"{{ {'' if returns == 'void' else 'return '}{call}; }}")
    return "\n".join(lines) + "\n"


def emit_map(operations, extra):
    symbols = "".join(f"        {symbol};\n" for symbol in
                      [*LOADER_SYMBOLS, *extra, *[operation["name"] for operation in operations]])
    return "{\n    global:\n" + symbols + "    local:\n        *;\n};\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", required=True, type=Path)
    parser.add_argument("--release", required=True, help="the release built for, MAJOR.MINOR.MICRO")
    parser.add_argument("--name", required=True, help="prefix of the files and of the namespace")
    parser.add_argument("--export", action="append", default=[], help="one more symbol to show")
    parser.add_argument("--output", required=True, type=Path, help="the directory for the three files")
    arguments = parser.parse_args()
    try:
        table = json.loads(arguments.operations.read_text(encoding="utf-8"))
        operations = operations_of(arguments.release, table)
    except (OSError, ValueError, Refused) as error:
        print(f"generate.py: {arguments.operations}: {error}", file=sys.stderr)
        return 1
    name = arguments.name
    arguments.output.mkdir(parents=True, exist_ok=True)
    for file_name, text in {
        f"{name}_operations.hpp": emit_header(name, arguments.release, table, operations),
        f"{name}_forwarders.inc": emit_forwarders(name, arguments.release, operations),
        f"{name}.map": emit_map(operations, arguments.export),
    }.items():
        (arguments.output / file_name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
