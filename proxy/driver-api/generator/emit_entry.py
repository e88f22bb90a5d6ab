# SPDX-License-Identifier: GPL-2.0-or-later
"""Generated entry points of a libcuda.so.1: all exported symbols, so that one is never missing.

A weak definition is what a symbol means until somebody writes a strong one in the same library. The per-thread variant of a
function is the function itself, called with the word that the default stream is now the calling thread's own.
"""

from emit_tables import BANNER
from names import camel
from versions import legacy_symbol

# Their parameters' types come from headers that a build machine need not have (GL, EGL, VDPAU).
DECLARED_IN = ("cuda.h", "cudaProfiler.h")


def spelled(function):
    return ", ".join(f"{p.spelling} {p.name}" for p in function.parameters)


def names(function):
    return ", ".join(p.name for p in function.parameters)


def is_per_thread(header, symbol):
    return legacy_symbol(symbol) != symbol and header.functions[symbol].header in DECLARED_IN


def unsupported(header, symbols):
    """C linkage, so a definition without parameters is as good as any: it does not look at them.

    The section tells, in the finished library, which functions are still these.
    """
    rows = "".join(f"UNSUPPORTED({symbol}, k{camel(symbol)})\n" for symbol in symbols
                   if not is_per_thread(header, symbol))
    return (f'{BANNER}#include "driver_api/api_id.hpp"\n#include "proxy/libcuda/entry.hpp"\n\n'
            "using singularity::driver_api::ApiId;\n\n"
            "#define UNSUPPORTED(symbol, id) \\\n"
            '    extern "C" [[gnu::weak, gnu::visibility("default"), gnu::section("singularity_unsupported")]] int symbol() { \\\n'
            "        return singularity::libcuda::unsupported(ApiId::id); \\\n    }\n\n"
            f"{rows}")


def per_thread(header, symbols):
    rows = ""
    for symbol in symbols:
        if is_per_thread(header, symbol):
            function = header.functions[symbol]
            rows += (f"CUresult {symbol}({spelled(function)}) {{\n    const PerThreadStream scope;\n"
                     f"    return {legacy_symbol(symbol)}({names(function)});\n}}\n")
    return (f'{BANNER}#include "proxy/libcuda/cuda.hpp"\n#include "proxy/libcuda/entry.hpp"\n\n'
            f'using singularity::libcuda::PerThreadStream;\n\nextern "C" {{\n\n{rows}\n}} // extern "C"\n')


def addresses(symbols):
    """The address of each symbol in this library, by id: for cuGetProcAddress."""
    declared = "".join(f'extern "C" [[gnu::visibility("default")]] int {symbol}();\n' for symbol in symbols)
    rows = "".join(f"    reinterpret_cast<void *>(&{symbol}),\n" for symbol in symbols)
    return (f'{BANNER}#include "driver_api/api_id.hpp"\n#include "proxy/libcuda/entry.hpp"\n\n'
            f"{declared}\nnamespace singularity::libcuda {{\n\nnamespace {{\n\n"
            f"void *const kAddresses[driver_api::kApiCount] = {{\n{rows}}};\n\n}} // namespace\n\n"
            "void *address_of(driver_api::ApiId id) { return kAddresses[static_cast<std::size_t>(id)]; }\n\n"
            "} // namespace singularity::libcuda\n")
