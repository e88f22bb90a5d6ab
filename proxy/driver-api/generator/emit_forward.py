# SPDX-License-Identifier: GPL-2.0-or-later
"""Generated forwarding: the client's functions that only carry a call to the daemon, and the daemon's half of each.

The client's half is written on top of proxy/client/forward.hpp, the daemon's on top of driver_api::Objects.
"""

from cheader import BUILTIN
from emit_entry import DECLARED_IN
from emit_messages import INTRO, OUTRO, WRITTEN
from emit_tables import BANNER
from names import camel
from versions import legacy_symbol

DEVICE_TYPES = ("CUdevice", "CUdevice_v1")


def kind_constant(kind):
    return "kHandle" + "".join(word.capitalize() for word in kind.split("_"))


def handles(api):
    constants = "".join(f"inline constexpr unsigned {kind_constant(kind)} = {at};\n"
                        for at, kind in enumerate(api.kinds, 1))
    texts = "".join(f'    "{kind}",\n' for kind in api.kinds)
    return (f"{BANNER}#pragma once\n\n#include <array>\n#include <string_view>\n\n{INTRO}"
            f"// Kinds of handles, in the order of driver_api.annotations.\n{constants}"
            f"inline constexpr unsigned kHandleKinds = {len(api.kinds)}; // the kinds are 1 to this\n\n"
            f"inline constexpr std::array<std::string_view, kHandleKinds + 1> kHandleKindNames{{{{\n"
            f'    "none",\n{texts}}}}};\n\n'
            "[[nodiscard]] constexpr std::string_view handle_kind_name(unsigned kind) {\n"
            '    return kind < kHandleKindNames.size() ? kHandleKindNames[kind] : "unknown";\n}\n\n' + OUTRO)


# --- The client

def client_function(header, message):
    function = header.functions[message.symbol]
    parameters = ", ".join(f"{p.spelling} {p.name}" for p in function.parameters)
    rows, arguments = "", [message.legacy_id]
    for use in message.uses:
        if use.role == "new":
            rows += f"    const auto chosen_{use.parameter.name} = new_handle(driver_api::{kind_constant(use.kind)});\n"
            arguments.append(f"chosen_{use.parameter.name}")
        if use.parameter.type in DEVICE_TYPES and use.role == "scalar":
            rows += (f"    const OnDevice on_{use.parameter.name}({use.parameter.name});\n"
                     f"    if (on_{use.parameter.name}.result() != CUDA_SUCCESS)\n"
                     f"        return on_{use.parameter.name}.result();\n")
    arguments += [p.name for p in function.parameters]
    rows += (f"    auto request = driver_api::{message.name}Call::request({', '.join(arguments)});\n"
             "    if (!request)\n        return refused(request.error());\n")
    for use in message.uses:
        if use.role in ("handle", "old"):
            rows += (f"    if (const auto bad = check_handle(driver_api::{kind_constant(use.kind)}, request->{use.parameter.name}); "
                     "bad != CUDA_SUCCESS)\n        return bad;\n")
    if not message.has_reply:
        rows += "    return send_async(*request);\n"
    else:
        written = [u for u in message.uses if u.role in WRITTEN]
        finish = "[]([[maybe_unused]] const auto &reply) {}"
        if written:
            given = ", ".join(u.parameter.name for u in written)
            finish = (f"[&](const driver_api::{message.name}Reply &reply) {{ "
                      f"driver_api::{message.name}Call::finish(*request, reply, {given}); }}")
        rows += ("    const auto result = send_sync(\n        *request,\n"
                 f"        [&](std::span<const std::byte> encoded) {{ return driver_api::decode_{message.name}Reply(*request, encoded); }},\n"
                 f"        {finish});\n")
        ended = "".join(f"        gone(driver_api::{kind_constant(u.kind)}, request->{u.parameter.name});\n"
                        for u in message.uses if u.role == "old")
        made = "".join(f"        made(driver_api::{kind_constant(u.kind)}, chosen_{u.parameter.name}, {message.legacy_id}, &*request);\n"
                       for u in message.uses if u.role == "new")
        if ended or made:
            rows += f"    if (result == CUDA_SUCCESS) {{\n{ended}{made}    }}\n"
        rows += "    return result;\n"
    return f"[[gnu::weak]] CUresult {message.symbol}({parameters}) {{\n{rows}}}\n\n"


def client(header, items, part, parts):
    for message in items:
        message.legacy_id = "driver_api::" + message.legacy
    body = "".join(client_function(header, m) for m in items[part::parts])
    return (f'{BANNER}#include "driver_api/calls.hpp"\n#include "driver_api/handles.hpp"\n'
            '#include "proxy/client/forward.hpp"\n#include "proxy/libcuda/cuda.hpp"\n\n'
            "namespace driver_api = singularity::driver_api;\nusing namespace singularity::client;\n\n"
            f'extern "C" {{\n\n{body}}} // extern "C"\n')


# --- The daemon

def backend_symbols(header):
    return [s for s in sorted(header.functions)
            if legacy_symbol(s) == s and header.functions[s].header in DECLARED_IN]


def backend(header):
    rows = "".join(f"    decltype(&::{s}) {s} = nullptr;\n" for s in backend_symbols(header))
    names = "".join(f'    load_symbol(library, "{s}", backend.{s});\n' for s in backend_symbols(header))
    hpp = (f"{BANNER}// A driver library, opened: each function's address, or nullptr where the library has none.\n"
           '#pragma once\n\n#include "proxy/libcuda/cuda.hpp"\n\n' + INTRO +
           f"struct Backend {{\n{rows}}};\n\n// library: from dlopen.\nvoid load(Backend &backend, void *library);\n\n" + OUTRO)
    cpp = (f'{BANNER}#include "driver_api/backend.hpp"\n\n#include <dlfcn.h>\n\n{INTRO}namespace {{\n\n'
           "template <class Function>\nvoid load_symbol(void *library, const char *name, Function &function) {\n"
           "    function = reinterpret_cast<Function>(dlsym(library, name));\n}\n\n} // namespace\n\n"
           f"void load(Backend &backend, void *library) {{\n{names}}}\n\n" + OUTRO)
    return hpp, cpp


def argument(header, use):
    """(statements before the call, the argument)"""
    parameter, name = use.parameter, use.parameter.name
    pointer = parameter.type in header.opaque
    if use.role in ("handle", "old"):
        cast = f"std::bit_cast<{parameter.type}>(*{name})" if pointer else f"static_cast<{parameter.type}>(*{name})"
        return (f"    const auto {name} = objects.real({kind_constant(use.kind)}, request->{name});\n"
                f"    if (!{name})\n        return answer(CUDA_ERROR_INVALID_HANDLE);\n"), cast
    if use.role == "new":
        return f"    {parameter.type} {name}{{}};\n", f"&{name}"
    if use.role == "scalar":
        if parameter.type in DEVICE_TYPES:
            return "", "objects.device()"
        return "", f"static_cast<{parameter.type}>(request->{name})"
    if use.role == "struct":
        return "", f"std::bit_cast<{parameter.type}>(request->{name})"
    if use.role == "address":
        return "", f"std::bit_cast<{parameter.spelling}>(request->{name})"
    if use.role == "null":
        return "", "nullptr"
    if use.role == "outlives":
        return (f"    void *const {name} = objects.host(request->{name});\n"
                f"    if ({name} == nullptr && request->{name}.size != 0)\n"
                f"        return answer(CUDA_ERROR_INVALID_VALUE);\n"), name
    if use.role == "string":
        return "", f"text(request->{name})"
    spelling = f"{parameter.type} *"
    if use.role == "in":
        if use.kind:
            return (f"    auto {name} = real_handles(objects, {kind_constant(use.kind)}, request->{name});\n"
                    f"    if (!{name})\n        return answer(CUDA_ERROR_INVALID_HANDLE);\n"), \
                f"request->{name}.present ? std::bit_cast<{spelling}>({name}->data()) : nullptr"
        return "", f"input<{parameter.type}>(request->{name})"
    # out and inout: storage of the daemon's own
    wanted = "true"
    if use.nullable:
        wanted = f"request->want_{name}" if use.role == "out" else f"request->{name}.present"
    given = f"request->{name}" if use.role == "inout" else "View{}"
    return (f"    OutputStorage {name}_out({wanted}, {{LENGTH}}, {given});\n"), f"{name}_out.as<{parameter.type}>()"


def dispatch_function(header, message):
    before, arguments = "", []
    for use in message.uses:
        rows, text = argument(header, use)
        if "{LENGTH}" in rows:
            rows = rows.replace("{LENGTH}", f"({message.length(use, '(*request)')}).value()")
        before += rows
        arguments.append(text)
    outputs = message.outputs
    body = ""
    if message.has_reply:
        body += (f"    {message.name}Reply reply;\n"
                 "    const auto answer = [&](CUresult result) -> Expected<CUresult> {\n"
                 "        reply.driver_result = static_cast<std::int32_t>(result);\n"
                 "        return finish(*request, reply, result, out);\n    };\n")
        body += ("    if (const auto size = output_size(*request); !size || *size > kMaxOutput)\n"
                 "        return answer(CUDA_ERROR_INVALID_VALUE);\n") if outputs else ""
    else:
        body += "    const auto answer = [](CUresult result) -> Expected<CUresult> { return result; };\n"
    body += f"    if (backend.{message.symbol} == nullptr)\n        return answer(CUDA_ERROR_NOT_SUPPORTED);\n"
    body += before
    body += f"    const CUresult result = backend.{message.symbol}({', '.join(arguments)});\n"
    after = ""
    for use in message.uses:
        name = use.parameter.name
        if use.role == "new":
            value = f"std::bit_cast<std::uint64_t>({name})" if use.parameter.type in header.opaque else f"std::uint64_t{{{name}}}"
            after += f"        objects.add({kind_constant(use.kind)}, request->{name}, {value});\n"
        elif use.role == "old":
            after += f"        objects.remove({kind_constant(use.kind)}, request->{name});\n"
    if after:
        body += f"    if (result == CUDA_SUCCESS) {{\n{after}    }}\n"
    for use in outputs:
        name = use.parameter.name
        if use.kind:
            body += (f"    if (result == CUDA_SUCCESS)\n        {name}_out.name_handles(objects, {kind_constant(use.kind)}, "
                     f"{counted(message, use)});\n")
        body += f"    reply.{name} = {name}_out.view();\n"
    body += "    return answer(result);\n"
    return (f"Expected<CUresult> call{message.name}(std::span<const std::byte> message, const Backend &backend,\n"
            f"    [[maybe_unused]] Objects &objects, [[maybe_unused]] std::vector<std::byte> &out) {{\n"
            f"    const auto request = decode_{message.name}Request(message);\n"
            f"    if (!request)\n        return std::unexpected(request.error());\n{body}}}\n\n")


def counted(message, use):
    """How many handles the driver has written: what the inout count says after the call, else all."""
    for term in use.length:
        for factor in term.factors:
            if isinstance(factor, str) and factor.startswith("*"):
                source = next(u for u in message.uses if u.parameter.name == factor[1:])
                if source.role == "inout":
                    ctype = BUILTIN[message.header.resolve(source.parameter.type)][1]
                    return f"{factor[1:]}_out.value<{ctype}>()"
    return "UINT64_MAX"


def dispatch(header, items, part, parts):
    mine = items[part::parts]
    body = "".join(dispatch_function(header, m) for m in mine)
    return (f'{BANNER}#include "driver_api/dispatch_calls.hpp"\n#include "driver_api/handles.hpp"\n'
            f'#include "proxy/driver-api/dispatch_support.hpp"\n\n{INTRO}{body}{OUTRO}')


def dispatch_header(items):
    rows = "".join(f"Expected<CUresult> call{m.name}(std::span<const std::byte> message, const Backend &backend, "
                   f"Objects &objects, std::vector<std::byte> &out);\n" for m in items)
    return (f'{BANNER}#pragma once\n\n#include "driver_api/messages.hpp"\n#include "proxy/driver-api/dispatch.hpp"\n\n'
            f"#include <vector>\n\n{INTRO}{rows}\n{OUTRO}")


def dispatch_table(items, symbols):
    by_id = {}
    for m in items:
        by_id[m.legacy] = f"{{&call{m.name}, {str(m.has_reply).lower()}}}"
    rows = "".join(f"    {by_id.get('ApiId::k' + camel(s), '{nullptr, false}')}, // {s}\n" for s in symbols)
    return (f'{BANNER}#include "driver_api/dispatch_calls.hpp"\n\n{INTRO}namespace {{\n\n'
            f"constexpr DispatchRow kRows[kApiCount] = {{\n{rows}}};\n\n}} // namespace\n\n"
            "const DispatchRow &dispatch_row(ApiId id) { return kRows[static_cast<std::size_t>(id)]; }\n\n" + OUTRO)
