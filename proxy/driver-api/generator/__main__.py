# SPDX-License-Identifier: GPL-2.0-or-later
"""python3 generator --cuda-include DIR --annotations FILE --out DIR [--compiler CXX]: see README.md one folder up."""

import argparse
import sys
from pathlib import Path

import annotations
import cheader
import emit_entry
import emit_forward
import emit_messages
import emit_tables
import layout
import versions
from names import camel

MESSAGE_PARTS = 4  # files that the messages' code is split over, so that they compile side by side
CALL_PARTS = 2


def write(path, text):
    """Only what has changed: what depends on it is not built again for nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def generate(compiler, cuda_include, annotation_path, out):
    header = cheader.read(compiler, cuda_include)
    path = Path(annotation_path)
    reader = annotations.Reader(header, annotation_path, path.read_text(encoding="utf-8"))
    api = reader.read()
    _, offsets = layout.measure(header, api, compiler, cuda_include, reader.inner)
    symbols = sorted(header.functions)
    if len({camel(symbol) for symbol in symbols}) != len(symbols):
        raise cheader.HeaderError("two symbols have the same name in C++: names.py")
    table = versions.build(header)
    items = emit_messages.messages(header, api, symbols, offsets)
    out = Path(out)
    write(out / "driver_api/api_id.hpp", emit_tables.api_id(header, symbols))
    write(out / "driver_api/messages.hpp", emit_messages.declarations(items))
    write(out / "driver_api/calls.hpp", emit_messages.calls(items))
    write(out / "driver_api/handles.hpp", emit_forward.handles(api))
    write(out / "driver_api/dispatch_calls.hpp", emit_forward.dispatch_header(items))
    hpp, cpp = emit_forward.backend(header)
    write(out / "driver_api/backend.hpp", hpp)
    write(out / "backend.cpp", cpp)
    write(out / "dispatch_table.cpp", emit_forward.dispatch_table(items, symbols))
    write(out / "entry_unsupported.cpp", emit_entry.unsupported(header, symbols))
    write(out / "entry_per_thread.cpp", emit_entry.per_thread(header, symbols))
    write(out / "entry_addresses.cpp", emit_entry.addresses(symbols))
    for part in range(CALL_PARTS):
        write(out / f"client{part}.cpp", emit_forward.client(header, items, part, CALL_PARTS))
        write(out / f"dispatch{part}.cpp", emit_forward.dispatch(header, items, part, CALL_PARTS))
    write(out / "tables.cpp", emit_tables.tables(symbols, table, api))
    for part in range(MESSAGE_PARTS):
        write(out / f"messages{part}.cpp", emit_messages.definitions(items, part, MESSAGE_PARTS))
    write(out / "libcuda.map", emit_tables.version_script(symbols))
    write(out / "libcuda.symbols", emit_tables.symbol_list(symbols))
    write(out / "driver-api.md", emit_tables.page(header, symbols, table, api))
    (out / "generated.stamp").touch()


def main():
    parser = argparse.ArgumentParser(description="Generates the proxy's view of the CUDA driver API.")
    parser.add_argument("--cuda-include", required=True, help="the toolkit's include directory")
    parser.add_argument("--annotations", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--compiler", default="c++", help="GCC or Clang; only preprocesses and measures")
    args = parser.parse_args()
    try:
        generate(args.compiler.split(";"), args.cuda_include, args.annotations, args.out)
    except (annotations.AnnotationError, cheader.HeaderError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
