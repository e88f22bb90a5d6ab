#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes a table of slurmctld's records from Slurm's source: where each field lies, as the compiler lays it out.

    make-table.py --source ~/slurm-26.05.5 --release 26.05.5 -o select-plugin/slurm-abi/26.05.5.json

The source must be that of the very release that runs, with the distribution's patches applied if it has any. A tree that
has not been configured is configured in a temporary directory (it takes a quarter of a minute); nothing is built and the
tree is not changed. Needs a C compiler, and pyelftools to read what it says (Debian: gcc, python3-pyelftools).
"""
import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# What is written down. The list of what is read, records/fields.json, is shorter; a table is made once and should last.
STRUCTS = ["job_record", "job_details", "node_record", "part_record", "job_resources", "gres_state", "gres_job_state",
           "gres_node_state", "slurmdb_qos_rec", "slurmdb_assoc_rec", "step_record", "will_run_data", "priority_factors",
           "resv_exc"]
# Without these there is no table: the structs of records/fields.json.
REQUIRED = {"job_record", "job_details", "node_record", "part_record", "slurmdb_qos_rec"}

# slurmctld.h includes most of the others. No type may be dropped for not being used.
PROBE = """#include "config.h"
#include "src/slurmctld/slurmctld.h"
#if __has_include("src/interfaces/gres.h")
#include "src/interfaces/gres.h"
#include "src/interfaces/select.h"
#else
#include "src/common/gres.h"
#include "src/common/select.h"
#endif
"""
COMPILER_FLAGS = ["-g", "-gdwarf-4", "-O0", "-fno-eliminate-unused-debug-types", "-w", "-D_GNU_SOURCE", "-c", "-x", "c"]

# As Debian configures what changes a header. Without dependency tracking, configure needs no make.
CONFIGURE_FLAGS = ["--enable-multiple-slurmd", "--disable-debug", "--without-rpath", "--disable-dependency-tracking"]


class Refused(Exception):
    """Why there is no table, in one sentence."""


def run(what, command, directory):
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        tail = "\n".join((result.stdout + result.stderr).strip().splitlines()[-20:])
        raise Refused(f"{what} failed: {' '.join(map(str, command))}\n{tail}")


def source_release(source):
    """MAJOR.MINOR.MICRO as META, the file that Slurm's configure reads, has it."""
    try:
        text = (source / "META").read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(f"{source} is not a source tree of Slurm: {error}") from error
    found = {name: re.search(rf"^\s*{name}:\s*(\d+)\s*$", text, re.MULTILINE) for name in ("Major", "Minor", "Micro")}
    if not all(found.values()):
        raise Refused(f"{source / 'META'} has no lines Major, Minor and Micro")
    return ".".join(found[name][1] for name in ("Major", "Minor", "Micro"))


def include_directories(source, scratch):
    """Where config.h and slurm/slurm_version.h are, and the source."""
    if (source / "config.h").exists() and (source / "slurm" / "slurm_version.h").exists():
        return [source]
    if not (source / "configure").exists():
        raise Refused(f"{source} is neither configured nor has it a configure script: run autoreconf there")
    print("configuring ...", file=sys.stderr)
    run("configuring", [source / "configure", *CONFIGURE_FLAGS], scratch)
    return [scratch, source]


def compile_probe(includes, scratch, compiler):
    probe, compiled = scratch / "probe.c", scratch / "probe.o"
    probe.write_text(PROBE, encoding="utf-8")
    flags = [flag for directory in includes for flag in ("-I", str(directory))]
    run("compiling a file that includes slurmctld.h", [compiler, *COMPILER_FLAGS, *flags, "-o", compiled, probe], scratch)
    return compiled


def referenced(die):
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


def name_of(die):
    attribute = die.attributes.get("DW_AT_name")
    return attribute.value.decode() if attribute else None


def c_type(die):
    """The type as C spells it."""
    if die is None:
        return "void"
    inner = referenced(die)
    if die.tag == "DW_TAG_pointer_type":
        if inner is not None and inner.tag == "DW_TAG_subroutine_type":
            return "function pointer"
        text = c_type(inner)
        return text + ("*" if text.endswith("*") else " *")
    if die.tag == "DW_TAG_const_type":
        return "const " + c_type(inner)
    if die.tag == "DW_TAG_volatile_type":
        return "volatile " + c_type(inner)
    if die.tag == "DW_TAG_array_type":
        counts = [child.attributes["DW_AT_upper_bound"].value + 1 if "DW_AT_upper_bound" in child.attributes else ""
                  for child in die.iter_children() if child.tag == "DW_TAG_subrange_type"]
        return c_type(inner) + " " + "".join(f"[{count}]" for count in counts)
    keyword = {"DW_TAG_structure_type": "struct ", "DW_TAG_union_type": "union ", "DW_TAG_enumeration_type": "enum "}
    return keyword.get(die.tag, "") + (name_of(die) or "(anonymous)")


def size_of(die):
    while "DW_AT_byte_size" not in die.attributes:
        if die.tag == "DW_TAG_array_type":
            total = size_of(referenced(die))
            for child in die.iter_children():
                if child.tag == "DW_TAG_subrange_type":
                    bound = child.attributes.get("DW_AT_upper_bound")
                    total *= bound.value + 1 if bound else 0
            return total
        die = referenced(die)
    return die.attributes["DW_AT_byte_size"].value


def fields_of(struct):
    """Bit-fields have no offset, members of anonymous unions no name of their own: both are left out."""
    fields = {}
    for member in struct.iter_children():
        if member.tag != "DW_TAG_member" or name_of(member) is None:
            continue
        if {"DW_AT_bit_size", "DW_AT_data_bit_offset"} & set(member.attributes):
            continue
        kind = referenced(member)
        fields[name_of(member)] = [member.attributes["DW_AT_data_member_location"].value, size_of(kind), c_type(kind)]
    return fields


def read_structs(compiled):
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        raise Refused("pyelftools is not installed (Debian: apt install python3-pyelftools)") from error
    found = {}
    with open(compiled, "rb") as file:
        for unit in ELFFile(file).get_dwarf_info().iter_CUs():
            for die in unit.get_top_DIE().iter_children():
                struct, name = die, name_of(die)
                if die.tag == "DW_TAG_typedef" and name.endswith("_t"):
                    # typedef struct { ... } name_t;
                    struct, name = referenced(die), name[:-2]
                if (name in STRUCTS and struct is not None and struct.tag == "DW_TAG_structure_type"
                        and "DW_AT_byte_size" in struct.attributes):
                    found[name] = {"size": struct.attributes["DW_AT_byte_size"].value, "fields": fields_of(struct)}
    missing = REQUIRED - set(found)
    if missing:
        raise Refused(f"slurmctld.h of this release declares no {', '.join(sorted(missing))}")
    return {name: found[name] for name in STRUCTS if name in found}


def make_table(source, release, compiler):
    actual = source_release(source)
    if actual != release:
        raise Refused(f"{source} is Slurm {actual}, not {release}")
    scratch = Path(tempfile.mkdtemp(prefix="make-table-"))
    try:
        compiled = compile_probe(include_directories(source, scratch), scratch, compiler)
        return {"release": release, "arch": platform.machine(), "structs": read_structs(compiled)}
    finally:
        shutil.rmtree(scratch)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, type=Path, help="Slurm's source tree")
    parser.add_argument("--release", required=True, help="what it must be, MAJOR.MINOR.MICRO, for example 26.05.5")
    parser.add_argument("-o", "--output", required=True, type=Path, help="the table, RELEASE.json")
    parser.add_argument("--compiler", default="cc", help="C compiler (cc)")
    arguments = parser.parse_args()
    try:
        table = make_table(arguments.source.resolve(), arguments.release, arguments.compiler)
    except Refused as refused:
        print(f"make-table.py: {refused}", file=sys.stderr)
        return 1
    arguments.output.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    print(f"{arguments.output}: {len(table['structs'])} structs of Slurm {arguments.release}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
