# SPDX-License-Identifier: GPL-2.0-or-later
"""Generated tables: ids, classes, versions, exported names, and the page for docs/."""

from names import camel
from versions import legacy_symbol, split_symbol

BANNER = "// Generated from cuda.h and driver_api.annotations. Do not edit.\n"


def class_of(api, symbol):
    annotation = api.functions.get(legacy_symbol(symbol))
    return annotation.api_class if annotation else "unsupported"


def variants(symbols, symbol):
    """(legacy, per-thread) symbols of the same function."""
    legacy = legacy_symbol(symbol)
    thread = next((legacy + suffix for suffix in ("_ptds", "_ptsz") if legacy + suffix in symbols), legacy)
    return (legacy if legacy in symbols else symbol), (thread if thread in symbols else symbol)


def api_id(header, symbols):
    rows = "".join(f"    k{camel(symbol)} = {at},\n" for at, symbol in enumerate(symbols))
    return (f"{BANNER}#pragma once\n\n#include <cstddef>\n#include <cstdint>\n\nnamespace singularity::driver_api {{\n\n"
            f"inline constexpr int kCudaVersion = {header.version};\n\n"
            f"// In the order of the symbols' names: an id is the index into that list.\n"
            f"// As wide as on the wire. NOLINTNEXTLINE(performance-enum-size)\n"
            f"enum class ApiId : std::uint32_t {{\n{rows}}};\n\n"
            f"inline constexpr std::size_t kApiCount = {len(symbols)};\n\n}} // namespace singularity::driver_api\n")


def tables(symbols, versions, api):
    known = set(symbols)
    rows = ""
    for symbol in symbols:
        legacy, thread = variants(known, symbol)
        rows += (f'    {{"{symbol}", "{split_symbol(symbol)[0]}", ApiClass::{class_of(api, symbol)}, '
                 f"ApiId::k{camel(legacy)}, ApiId::k{camel(thread)}}},\n")
    procs = "".join(f'    {{"{v.name}", {v.version}, {str(v.per_thread).lower()}, ApiId::k{camel(v.symbol)}}},\n'
                    for v in versions)
    return (f'{BANNER}#include "proxy/driver-api/api.hpp"\n#include "proxy/driver-api/proc_address.hpp"\n\n'
            f"namespace singularity::driver_api {{\n\nnamespace {{\n\n"
            f"constexpr ApiInfo kApis[] = {{\n{rows}}};\nstatic_assert(std::size(kApis) == kApiCount);\n\n"
            f"constexpr ProcVersion kVersions[] = {{\n{procs}}};\n\n}} // namespace\n\n"
            f"std::span<const ApiInfo> api_table() {{ return kApis; }}\n"
            f"std::span<const ProcVersion> proc_versions() {{ return kVersions; }}\n\n"
            f"}} // namespace singularity::driver_api\n")


def version_script(symbols):
    """libcuda.so.1 has unversioned symbols (nm -D shows no @): an anonymous version node only hides the others."""
    return "{\n  global:\n" + "".join(f"    {symbol};\n" for symbol in symbols) + "  local:\n    *;\n};\n"


def symbol_list(symbols):
    return "".join(f"{symbol}\n" for symbol in symbols)


EXPLAINED = [("local", "answered by the client"), ("async", "forwarded without waiting"),
             ("sync", "forwarded, waits for the reply"), ("create", "makes an object"), ("destroy", "ends an object"),
             ("manual", "hand-written"), ("unsupported", "returns CUDA_ERROR_NOT_SUPPORTED")]
NO_REASON = "nobody has said how it is to be answered"


def reason_of(api, symbol):
    """Why it is refused; nothing, if it is not."""
    if class_of(api, symbol) != "unsupported":
        return ""
    annotation = api.functions.get(legacy_symbol(symbol))
    return api.reasons[annotation.reason] if annotation and annotation.reason else NO_REASON


def page(header, symbols, versions, api):
    since = {v.symbol: v.version for v in versions}
    shown = [symbol for symbol in symbols if legacy_symbol(symbol) == symbol]
    count = {name: sum(class_of(api, s) == name for s in shown) for name, _ in EXPLAINED}
    out = ["# The CUDA driver API, function by function", "",
           f"Generated from cuda.h {header.version // 1000}.{header.version % 1000 // 10} and "
           "proxy/driver-api/driver_api.annotations.",
           f"{len(symbols)} exported symbols; {len(shown)} functions without their per-thread-stream variants.", "",
           "| class | meaning | functions |", "|---|---|---|"]
    out += [f"| {name} | {meaning} | {count[name]} |" for name, meaning in EXPLAINED]
    out += ["", "| function | since CUDA | class | per-thread variant | why it is refused |", "|---|---|---|---|---|"]
    known = set(symbols)
    for symbol in shown:
        thread = variants(known, symbol)[1]
        version = since[symbol]
        out.append(f"| {symbol} | {version // 1000}.{version % 1000 // 10} | {class_of(api, symbol)} | "
                   f"{thread if thread != symbol else ''} | {reason_of(api, symbol)} |")
    return "\n".join(out) + "\n"
