#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Emits the C++ header through which slurmctld's records are read.

The header holds, for one exact release of Slurm: where each listed field lies (from the table of that release), one
snapshot struct per record, the functions that fill a snapshot through a Reader, and the functions that compare two
snapshots with what the public API says. Which fields: fields.json. Which table: choose_table() below.

Exit status 1, with one line on stderr that names struct and field, when the table does not fit the list.
"""
import argparse
import json
import re
import sys
from pathlib import Path

# What a listed type may be spelled as in C, its size, and what a snapshot holds it as.
TYPES = {
    "u16": {"ctypes": ["uint16_t"], "size": 2, "cpp": "std::uint16_t"},
    "u32": {"ctypes": ["uint32_t"], "size": 4, "cpp": "std::uint32_t"},
    "u64": {"ctypes": ["uint64_t"], "size": 8, "cpp": "std::uint64_t"},
    "time": {"ctypes": ["time_t"], "size": 8, "cpp": "std::int64_t"},
    "string": {"ctypes": ["char *"], "size": 8, "cpp": "Text"},
    "pointer": {"ctypes": [], "size": 8, "cpp": None},
}
POINTER_SIZE = 8


class Refused(Exception):
    """What is wrong with the input, in one sentence."""


def release_key(release):
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", release)
    if not match:
        raise Refused(f"'{release}' is not a release of Slurm: expected MAJOR.MINOR.MICRO")
    return tuple(int(part) for part in match.groups())


def load_table(path):
    try:
        table = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"cannot read the table {path}: {error}") from error
    for key in ("release", "arch", "structs"):
        if key not in table:
            raise Refused(f"{path} is not a table of records: it has no '{key}'")
    return table


def listed_structs(table, fields):
    """The layouts that matter: two tables with the same answer are the same table for this project.

    Of fields that are not listed only the place counts: slurm renames some (part_prio became prio_mult after 24.11.5).
    """
    layouts = {}
    for struct in fields["structs"]:
        found = table["structs"].get(struct["struct"])
        if found is not None:
            names = {name for field in struct["fields"] for name in [field["name"], *field.get("aliases", [])]}
            layouts[struct["struct"]] = (
                found["size"],
                sorted(tuple(place) for place in found["fields"].values()),
                {name: place for name, place in found["fields"].items() if name in names | {"magic"}},
            )
    return layouts


def choose_table(release, tables, fields):
    """The table for a release, and why it is the right one: (table or None, reason).

    Slurm keeps no promise about its records, not even inside a minor release (job_record grew between 24.11.0 and 24.11.5), so
    a table is for an exact release. One inference is sound enough to start from: if a micro release lies between two
    tabled ones of the same major.minor and every struct listed is the same in both, a change in between would have
    to have been made and taken back again; the magic numbers, the block sizes and the comparison with the public
    API would still catch it at run time. Beyond the last or before the first table nothing is inferred.
    """
    exact = [table for table in tables if table["release"] == release]
    if exact:
        return exact[0], "the table of exactly this release"
    wanted = release_key(release)
    same_minor = sorted((release_key(table["release"]), index) for index, table in enumerate(tables)
                        if release_key(table["release"])[:2] == wanted[:2])
    before = [entry for entry in same_minor if entry[0] < wanted]
    after = [entry for entry in same_minor if entry[0] > wanted]
    if before and after:
        low, high = tables[before[-1][1]], tables[after[0][1]]
        if low["arch"] == high["arch"] and listed_structs(low, fields) == listed_structs(high, fields):
            return low, f"{low['release']} and {high['release']} are alike in every record listed, and {release} lies between them"
        return None, f"{low['release']} and {high['release']}, between which {release} lies, differ"
    known = ", ".join(tables[index]["release"] for _, index in same_minor) or "none"
    return None, f"there is no table for it, nor one before and one after it (of its series there are: {known})"


def locate(struct, field, table):
    """[offset, size, ctype] of a listed field, after checking that it is what the list expects."""
    where = f"{struct['struct']}.{field['name']}"
    found = table["structs"].get(struct["struct"])
    if found is None:
        raise Refused(f"the table of {table['release']} has no struct '{struct['struct']}'")
    names = [field["name"], *field.get("aliases", [])]
    name = next((name for name in names if name in found["fields"]), None)
    if name is None:
        raise Refused(f"{where}: the table of {table['release']} has no such field (names tried: {', '.join(names)}); "
                      "if the release renamed it, add the new name to its 'aliases' in fields.json")
    offset, size, ctype = found["fields"][name]
    expected = TYPES[field["type"]]
    ctypes = field.get("ctypes", expected["ctypes"])
    if size != expected["size"] or ctype not in ctypes:
        raise Refused(f"{where}: the table of {table['release']} says {ctype} of {size} bytes, the list expects "
                      f"{' or '.join(ctypes)} of {expected['size']} bytes")
    if offset < 0 or offset + size > found["size"]:
        raise Refused(f"{where}: offset {offset} lies outside the struct of {found['size']} bytes in the table of "
                      f"{table['release']}")
    return offset


def check_list(fields):
    known = [struct["struct"] for struct in fields["structs"]]
    for struct in fields["structs"]:
        for field in struct["fields"]:
            where = f"{struct['struct']}.{field['name']}"
            if field["type"] not in TYPES:
                raise Refused(f"{where}: unknown type '{field['type']}' in fields.json, known are {', '.join(TYPES)}")
            if sum(key in field for key in ("api", "checked_as", "unchecked")) != 1:
                raise Refused(f"{where}: fields.json must say exactly one of 'api', 'checked_as' and 'unchecked'")
            if "api" in field and not struct["api_struct"]:
                raise Refused(f"{where}: has 'api', but its struct has no 'api_struct'")
            if field["type"] == "pointer" and field.get("to") not in known[:known.index(struct["struct"])]:
                raise Refused(f"{where}: 'to' must name a struct listed before this one")


def cpp_type(field, fields):
    if field["type"] != "pointer":
        return TYPES[field["type"]]["cpp"]
    target = next(struct for struct in fields["structs"] if struct["struct"] == field["to"])
    return f"std::optional<{target['snapshot']}>"


def emit(release, table, reason, fields):
    out = []
    add = out.append
    add("// Made by records/generate.py from records/fields.json and a table in slurm-abi/; do not edit.")
    add("// SPDX-License-Identifier: GPL-2.0-or-later")
    add("#pragma once\n")
    add("#include <optional>\n#include <string_view>\n\n#include <cstdint>\n")
    add('#include "common/error.hpp"\n#include "comparison.hpp"\n#include "conditions.hpp"\n#include "reader.hpp"\n')
    add("namespace singularity::records {\n")
    add(f'inline constexpr std::string_view kRelease = "{release}";')
    add(f"inline constexpr bool kHasTable = {'true' if table else 'false'};")
    add(f'inline constexpr std::string_view kWhyThisTable = "{reason}";\n')
    for struct in fields["structs"]:
        name = struct["snapshot"]
        found = table["structs"].get(struct["struct"]) if table else None
        if table and found is None:
            raise Refused(f"the table of {table['release']} has no struct '{struct['struct']}'")
        add(f"inline constexpr StructLayout k{name}Layout{{")
        add(f'    .name = "{struct["struct"]}",')
        add(f"    .size = {found['size'] if found else 'kNowhere'},")
        if struct["magic"]:
            offset = locate(struct, {"name": "magic", "type": "u32"}, table) if table else "kNowhere"
            add(f"    .magic_offset = {offset},")
            add(f"    .magic = {struct['magic']}U, // {struct['magic_source']}")
        else:
            add(f"    .magic_offset = kNowhere, // {struct['magic_source']}")
            add("    .magic = 0,")
        add("};")
        for field in struct["fields"]:
            offset = locate(struct, field, table) if table else "kNowhere"
            add(f'inline constexpr FieldLayout k{name}_{field["name"]}{{&k{name}Layout, "{field["name"]}", {offset}}};')
        add(f"\n// What is read of one {struct['struct']}.")
        add(f"struct {name} {{")
        for field in struct["fields"]:
            initial = "" if field["type"] in ("string", "pointer") else " = 0"
            add(f"    {cpp_type(field, fields)} {field['name']}{initial};")
        add(f"\n    friend bool operator==(const {name} &, const {name} &) = default;")
        add("};\n")
        add("template <class Reader>")
        add(f"[[nodiscard]] Expected<{name}> read_{struct['struct']}(const Reader &reader, const void *record) {{")
        add(f"    auto view = reader.open(k{name}Layout, record);")
        add("    if (!view)")
        add("        return propagate(view);")
        add(f"    {name} snapshot;")
        for field in struct["fields"]:
            values = f"k{name}_{field['name']}, snapshot.{field['name']}"
            if field["type"] == "pointer":
                add(f"    if (auto done = follow(reader, *view, {values}, read_{field['to']}<Reader>); !done)")
            else:
                add(f"    if (auto done = view->read({values}); !done)")
            add("        return propagate(done);")
        add("    return snapshot;")
        add("}\n")
    for struct in fields["structs"]:
        if not struct["api_struct"]:
            continue
        name = struct["snapshot"]
        add("// Before and after are reads of the record around the moment at which slurmctld answered with `shown`: what did not")
        add("// change in between must be what was shown.")
        add("template <class Shown>")
        add(f"void compare_{struct['struct']}(Comparison &comparison, const {name} &before, const {name} &after,")
        add("                        const Shown &shown) {")
        for field in struct["fields"]:
            if "api" not in field:
                continue
            layout = f"k{name}_{field['name']}"
            values = f"before.{field['name']}, after.{field['name']}, shown.{field['api']}"
            if "when" in field:
                add(f"    if (before.job_state == after.job_state && conditions::{field['when']}(before) &&")
                add(f"        conditions::{field['when']}(after))")
                add(f"        comparison.field({layout}, {values});")
            else:
                add(f"    comparison.field({layout}, {values});")
        add("}\n")
    add("} // namespace singularity::records")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fields", required=True, type=Path)
    parser.add_argument("--release", required=True, help="the release built for, MAJOR.MINOR.MICRO")
    parser.add_argument("--tables", type=Path, help="the directory of tables to choose from")
    parser.add_argument("--table", type=Path, help="use this table whatever release it says it is for")
    parser.add_argument("--output", required=True, type=Path)
    arguments = parser.parse_args()
    try:
        fields = json.loads(arguments.fields.read_text(encoding="utf-8"))
        check_list(fields)
        if arguments.table:
            table, reason = load_table(arguments.table), f"it was named by hand: {arguments.table.name}"
        elif arguments.tables:
            tables = [load_table(path) for path in sorted(arguments.tables.glob("*.json"))]
            table, reason = choose_table(arguments.release, tables, fields)
        else:
            raise Refused("one of --tables and --table is required")
        text = emit(arguments.release, table, reason, fields)
    except Refused as refused:
        print(f"generate.py: {refused}", file=sys.stderr)
        return 1
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
