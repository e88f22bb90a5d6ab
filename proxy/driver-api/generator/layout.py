# SPDX-License-Identifier: GPL-2.0-or-later
"""Sizes and offsets, from the compiler: constants in its assembly output, so nothing is run (as Linux's asm-offsets do)."""

import re
import subprocess

from cheader import DEFINES, HeaderError


def probe(compiler, cuda_include, expressions):
    """{expression: value} of constant C++ expressions over cuda.h."""
    expressions = list(dict.fromkeys(expressions))
    lines = ["#include <cstddef>", "#include <cuda.h>", 'extern "C" void probe() {']
    # A comment to the assembler: Clang looks at it even here.
    lines += [f'asm volatile("\\n# ->{at} %0" :: "i"({text}));' for at, text in enumerate(expressions)]
    command = [*compiler, "-S", "-x", "c++", "-std=c++17", "-w", *DEFINES, "-I", str(cuda_include), "-o", "-", "-"]
    run = subprocess.run(command, input="\n".join([*lines, "}\n"]), capture_output=True, text=True)
    if run.returncode:
        raise HeaderError(f"cannot measure the structs: {' '.join(command)}: {run.stderr.strip()}")
    found = dict(re.findall(r"->(\d+) \D?(\d+)", run.stdout))
    if len(found) != len(expressions):
        raise HeaderError(f"measured {len(found)} of {len(expressions)} expressions; is the compiler GCC or Clang?")
    return {text: int(found[str(at)]) for at, text in enumerate(expressions)}


def measure(header, api, compiler, cuda_include, inner):
    """Sets the element sizes of structs; returns the sizes of structs and {(struct, member): offset} of pointers."""
    structs = {header.resolve(use.parameter.type) for a in api.functions.values() for use in a.uses
               if header.resolve(use.parameter.type) in header.structs}
    pointers = [(name, m.path) for name in sorted(structs) for m in inner(name) if m.pointers]
    values = probe(compiler, cuda_include, [f"sizeof({name})" for name in sorted(structs)]
                   + [f"offsetof({name}, {path})" for name, path in pointers])
    for annotation in api.functions.values():
        for use in annotation.uses:
            name = header.resolve(use.parameter.type)
            if name in structs and not use.element:
                use.element = values[f"sizeof({name})"]
    return ({name: values[f"sizeof({name})"] for name in structs},
            {(name, path): values[f"offsetof({name}, {path})"] for name, path in pointers})
