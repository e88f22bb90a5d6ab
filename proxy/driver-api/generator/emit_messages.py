# SPDX-License-Identifier: GPL-2.0-or-later
"""Generated messages: typed requests and replies, their wire layout, encoding, decoding, and the bridge from a C call."""

from annotations import WIRE_CLASSES
from cheader import BUILTIN
from emit_tables import BANNER, variants
from names import camel

HEADER_SIZE = 16  # MessageHeader
ALIGNMENT = 8
WRITTEN = ("out", "inout", "new")  # roles through which the caller gets something back


class Layout:
    """Fields in order, natural alignment, padding spelled out: the same on every compiler."""

    def __init__(self):
        self.fields, self.offset, self.pads = [], HEADER_SIZE, 0

    def pad_to(self, alignment):
        gap = -self.offset % alignment
        if gap:
            self.fields.append((f"padding{self.pads}", f"std::array<std::uint8_t, {gap}>", self.offset))
            self.pads += 1
            self.offset += gap

    def add(self, name, ctype, size, alignment=None):
        self.pad_to(min(alignment or size, ALIGNMENT))
        self.fields.append((name, ctype, self.offset))
        self.offset += size

    def text(self, name):
        self.pad_to(ALIGNMENT)
        rows = "".join(f"    {ctype} {field}{{}};\n" for field, ctype, _ in self.fields)
        checks = "".join(f"static_assert(offsetof({name}, {field}) == {offset});\n"
                         for field, _, offset in self.fields if not field.startswith("padding"))
        return (f"struct {name} {{\n    MessageHeader header{{}};\n{rows}}};\n"
                f"static_assert(sizeof({name}) == {self.offset});\n{checks}\n")

    def pad_checks(self, where):
        return "".join(f"    if (wire.{field} != decltype(wire.{field}){{}})\n"
                       f'        return refuse({where}, "", "padding in the fixed part is not zero");\n'
                       for field, _, _ in self.fields if field.startswith("padding"))


class Message:
    def __init__(self, header, annotation, symbols, offsets):
        self.header, self.symbol, self.uses = header, annotation.symbol, annotation.uses
        self.name = camel(annotation.symbol)
        legacy, thread = variants(symbols, annotation.symbol)
        self.legacy, self.thread = f"ApiId::k{camel(legacy)}", f"ApiId::k{camel(thread)}"
        self.has_reply = annotation.api_class != "async"
        self.offsets = offsets
        self.outputs = [u for u in self.uses if u.role in ("out", "inout")]
        self.inputs = [u for u in self.uses if u.role in ("in", "inout", "string")]
        # Buffers whose length does not hang on another buffer come first.
        self.ordered = sorted(self.inputs, key=lambda u: any(str(f).startswith("*") for t in u.length for f in t.factors))

    # -- pieces of C++

    def scalar_type(self, use):
        if use.role in ("handle", "old", "new", "address", "null"):
            return "std::uint64_t", 8
        resolved = self.header.resolve(use.parameter.type)
        if resolved in BUILTIN:
            return BUILTIN[resolved][1], BUILTIN[resolved][0]
        return "std::int32_t", 4  # enums

    def length(self, use, source="message"):
        """C++ expression for the number of bytes."""
        text = ""
        for term in use.length:
            factors = []
            for factor in term.factors:
                if isinstance(factor, int):
                    factors.append(f"Length({factor})")
                elif factor.startswith("*"):
                    target = next(u for u in self.uses if u.parameter.name == factor[1:])
                    ctype = BUILTIN[self.header.resolve(target.parameter.type)][1]
                    factors.append(f"Length::at<{ctype}>({source}.{factor[1:]})")
                else:
                    factors.append(f"Length({source}.{factor})")
            product = " * ".join(factors)
            text += (" - " if term.minus else " + ") + product if text else product
        if use.element != 1:
            text = f"({text}) * Length({use.element})" if len(use.length) > 1 else f"{text} * Length({use.element})"
        return text

    def exact(self, use):
        return all(isinstance(f, int) for term in use.length for f in term.factors)

    def nulls(self, use):
        name = self.header.resolve(use.parameter.type)
        found = sorted(offset for (struct, _), offset in self.offsets.items() if struct == name)
        return "{" + ", ".join(map(str, found)) + "}"

    def context(self, kind):
        return f'Context{{"{self.symbol}", MessageKind::{kind}}}'

    # -- the types

    def request_struct(self):
        rows = ""
        for use in self.uses:
            name = use.parameter.name
            if use.role in ("in", "inout", "string"):
                rows += f"    View {name};\n"
            elif use.role == "outlives":
                rows += f"    HostRange {name};\n"
            elif use.role == "struct":
                rows += f"    std::array<std::byte, {use.element}> {name}{{}};\n"
            elif use.role == "out":
                if use.nullable:
                    rows += f"    bool want_{name} = false;\n"
            elif use.role != "null":
                note = " // the handle that the client has chosen" if use.role == "new" else ""
                rows += f"    {self.scalar_type(use)[0]} {name}{{}};{note}\n"
        return f"struct {self.name}Request {{\n    ApiId api = {self.legacy};\n{rows}}};\n"

    def reply_struct(self):
        rows = "".join(f"    View {use.parameter.name};\n" for use in self.outputs)
        return f"struct {self.name}Reply {{\n    ApiId api = {self.legacy};\n    std::int32_t driver_result = 0; // CUresult\n{rows}}};\n"

    def flags(self):
        """Bits of the fixed part's `present`: which pointers are not NULL."""
        return [u for u in self.uses if u.nullable and u.role in ("in", "inout", "string", "out")]

    def request_layout(self):
        layout = Layout()
        if self.flags():
            layout.add("present", "std::uint32_t", 4)
        for use in self.uses:
            name = use.parameter.name
            if use.role == "string":
                layout.add(f"{name}_size", "std::uint64_t", 8)
            elif use.role == "outlives":
                layout.add(f"{name}_address", "std::uint64_t", 8)
                layout.add(f"{name}_size", "std::uint64_t", 8)
            elif use.role == "struct":
                layout.add(name, f"std::array<std::byte, {use.element}>", use.element, 8)
            elif use.role in ("scalar", "handle", "old", "new", "address"):
                layout.add(name, *self.scalar_type(use))
        return layout

    def reply_layout(self):
        layout = Layout()
        layout.add("driver_result", "std::int32_t", 4)
        layout.add("present", "std::uint32_t", 4)
        for use in self.outputs:
            layout.add(f"{use.parameter.name}_size", "std::uint64_t", 8)
        return layout

    def declarations(self):
        out = self.request_struct() + self.request_layout().text(f"{self.name}RequestWire")
        out += (f"[[nodiscard]] Expected<void> check(const {self.name}Request &message);\n"
                f"[[nodiscard]] Expected<std::size_t> encode(const {self.name}Request &message, std::span<std::byte> storage);\n"
                f"[[nodiscard]] Expected<{self.name}Request> decode_{self.name}Request(std::span<const std::byte> bytes);\n\n")
        if self.has_reply:
            out += self.reply_struct() + self.reply_layout().text(f"{self.name}ReplyWire")
            out += (f"// The bytes that all outputs together need at most.\n"
                    f"[[nodiscard]] Expected<std::uint64_t> output_size(const {self.name}Request &message);\n"
                    f"[[nodiscard]] Expected<void> check(const {self.name}Request &request, const {self.name}Reply &reply);\n"
                    f"[[nodiscard]] Expected<std::size_t> encode(const {self.name}Request &request, const {self.name}Reply &reply, "
                    f"std::span<std::byte> storage);\n"
                    f"[[nodiscard]] Expected<{self.name}Reply> decode_{self.name}Reply(const {self.name}Request &request, "
                    f"std::span<const std::byte> bytes);\n\n")
        return out + self.visit()

    def visit(self):
        """For tests and tracing: calls the visitor once for each field, lengths' sources before what they measure."""
        rows = ""
        for use in self.uses:
            name = use.parameter.name
            if use.role in ("scalar", "address"):
                rows += f'    visitor.value("{name}", message.{name});\n'
            elif use.role in ("handle", "old", "new"):
                rows += f'    visitor.handle("{name}", "{use.kind}", message.{name}, {str(use.role == "new").lower()});\n'
            elif use.role == "struct":
                rows += f'    visitor.object("{name}", message.{name});\n'
            elif use.role == "out" and use.nullable:
                rows += f'    visitor.wanted("{name}", message.want_{name});\n'
        for use in self.uses:
            if use.role == "outlives":
                rows += f'    visitor.range("{use.parameter.name}", message.{use.parameter.name}, {self.length(use)});\n'
        for use in self.ordered:
            name, nullable = use.parameter.name, str(use.nullable).lower()
            if use.role == "string":
                rows += f'    visitor.string("{name}", message.{name}, {nullable});\n'
            else:
                rows += (f'    visitor.buffer("{name}", message.{name}, {self.length(use)}, {nullable}, '
                         f"{str(use.nulls).lower()});\n")
        used = "message" if rows else "/*message*/"
        visitor = "visitor" if rows else "/*visitor*/"
        out = (f"template <class Visitor>\nvoid visit({self.name}Request &{used}, Visitor &{visitor}) {{\n{rows}}}\n\n")
        if self.has_reply:
            rows = ""
            for use in self.outputs:
                name = use.parameter.name
                rows += (f'    visitor.output("{name}", reply.{name}, {self.output("request", use)}, '
                         f"{str(use.nulls).lower()});\n")
            out += (f"template <class Visitor>\nvoid visit([[maybe_unused]] const {self.name}Request &request, {self.name}Reply &reply, Visitor &visitor) {{\n"
                    f'    visitor.value("driver_result", reply.driver_result);\n{rows}}}\n\n')
        return out

    def output(self, source, use):
        name = use.parameter.name
        wanted = "true"
        if use.nullable:
            wanted = f"{source}.want_{name}" if use.role == "out" else f"{source}.{name}.present"
        return (f"Output{{.capacity = {self.length(use, source)}, .element = {use.element}, .wanted = {wanted}, "
                f".exact = {str(self.exact(use)).lower()}}}")

    # -- the code

    def definitions(self):
        return self.check_request() + self.encode_request() + self.decode_request() + (
            self.check_reply() + self.encode_reply() + self.decode_reply() if self.has_reply else "")

    def check_request(self):
        rows = ""
        for use in self.uses:
            name, nullable = use.parameter.name, str(use.nullable).lower()
            call = None
            if use.role in ("in", "inout"):
                call = f'check_buffer(context, "{name}", message.{name}, {self.length(use)}, {nullable})'
            elif use.role == "string":
                call = f'check_string(context, "{name}", message.{name}, {nullable})'
            elif use.role == "outlives":
                call = f'check_range(context, "{name}", message.{name}, {self.length(use)})'
            elif use.role == "new":
                rows += (f"    if (message.{name} == 0)\n"
                         f'        return refuse(context, "{name}", "the new handle is 0; the client chooses another");\n')
            elif use.role == "out":
                condition = f"message.want_{name} && " if use.nullable else ""
                if not self.exact(use):
                    rows += (f"    if ({condition}!({self.length(use)}).valid())\n"
                             f'        return refuse(context, "{name}", "its length is negative, overflows, or is missing");\n')
            if call:
                rows += f"    if (auto ok = {call}; !ok)\n        return propagate(ok);\n"
            if use.nulls and use.role in ("in", "inout"):
                rows += (f'    if (auto ok = check_nulls(context, "{name}", message.{name}, {use.element}, {self.nulls(use)}); !ok)\n'
                         f"        return propagate(ok);\n")
        both = f" && message.api != {self.thread}" if self.thread != self.legacy else ""
        return (f"Expected<void> check(const {self.name}Request &message) {{\n"
                f"    constexpr auto context = {self.context('request')};\n"
                f"    if (message.api != {self.legacy}{both})\n"
                f'        return refuse(context, "", "it is for another function");\n{rows}    return {{}};\n}}\n\n')

    def encode_request(self):
        rows = ""
        for bit, use in enumerate(self.flags()):
            name = use.parameter.name
            condition = f"message.want_{name}" if use.role == "out" else f"message.{name}.present"
            rows += f"    wire.present |= static_cast<std::uint32_t>({condition}) << {bit};\n"
        for use in self.uses:
            name = use.parameter.name
            if use.role == "string":
                rows += f"    wire.{name}_size = message.{name}.bytes.size();\n"
            elif use.role == "outlives":
                rows += f"    wire.{name}_address = message.{name}.address;\n    wire.{name}_size = message.{name}.size;\n"
            elif use.role in ("scalar", "handle", "old", "new", "address", "struct"):
                rows += f"    wire.{name} = message.{name};\n"
        buffers = "".join(f"    writer.buffer(message.{use.parameter.name});\n" for use in self.ordered)
        return (f"Expected<std::size_t> encode(const {self.name}Request &message, std::span<std::byte> storage) {{\n"
                f"    if (auto ok = check(message); !ok)\n        return propagate(ok);\n"
                f"    {self.name}RequestWire wire;\n"
                f"    wire.header = {{static_cast<std::uint32_t>(message.api), static_cast<std::uint32_t>(MessageKind::request), 0}};\n"
                f"{rows}    Writer writer(storage);\n    writer.fixed(wire);\n{buffers}"
                f"    return writer.finish({self.context('request')});\n}}\n\n")

    def decode_request(self):
        rows = ""
        flags = self.flags()
        bits = {id(use): bit for bit, use in enumerate(flags)}
        if flags:
            rows += (f"    if ((wire.present >> {len(flags)}) != 0)\n"
                     f'        return refuse(context, "", "unknown bits in present");\n')
        for use in self.uses:
            name = use.parameter.name
            if use.role == "outlives":
                rows += f"    message.{name} = {{wire.{name}_address, wire.{name}_size}};\n"
            elif use.role in ("scalar", "handle", "old", "new", "address", "struct"):
                rows += f"    message.{name} = wire.{name};\n"
            elif use.role == "out" and use.nullable:
                rows += f"    message.want_{name} = ((wire.present >> {bits[id(use)]}) & 1) != 0;\n"
        for use in self.ordered:
            name = use.parameter.name
            present = f"((wire.present >> {bits[id(use)]}) & 1) != 0" if use.nullable else "true"
            if use.role == "string":
                if use.nullable:
                    rows += (f"    if (!({present}) && wire.{name}_size != 0)\n"
                             f'        return refuse(context, "{name}", "an absent string has a size");\n')
                size = f"Length(wire.{name}_size)"
            else:
                size = self.length(use)
            rows += (f'    auto {name}_view = reader.buffer("{name}", {size}, {present});\n'
                     f"    if (!{name}_view)\n        return propagate({name}_view);\n"
                     f"    message.{name} = *{name}_view;\n")
        return (f"Expected<{self.name}Request> decode_{self.name}Request(std::span<const std::byte> bytes) {{\n"
                f"    constexpr auto context = {self.context('request')};\n"
                f"    Reader reader(context, bytes);\n"
                f"    auto fixed = reader.fixed<{self.name}RequestWire>({self.legacy}, {self.thread});\n"
                f"    if (!fixed)\n        return propagate(fixed);\n"
                f"    const auto &wire = *fixed;\n"
                f"{self.request_layout_pads()}"
                f"    {self.name}Request message;\n    message.api = static_cast<ApiId>(wire.header.api);\n{rows}"
                f"    if (auto ok = reader.finish(); !ok)\n        return propagate(ok);\n"
                f"    if (auto ok = check(message); !ok)\n        return propagate(ok);\n"
                f"    return message;\n}}\n\n")

    def request_layout_pads(self):
        layout = self.request_layout()
        layout.pad_to(ALIGNMENT)
        return layout.pad_checks("context")

    def check_reply(self):
        rows, sum_rows = "", ""
        for use in self.outputs:
            name = use.parameter.name
            rows += (f'    if (auto ok = check_output(context, "{name}", reply.{name}, {self.output("request", use)}, reply.driver_result); !ok)\n'
                     f"        return propagate(ok);\n")
            if use.nulls:
                rows += (f'    if (auto ok = check_nulls(context, "{name}", reply.{name}, {use.element}, {self.nulls(use)}); !ok)\n'
                         f"        return propagate(ok);\n")
            wanted = f"message.want_{name}" if use.role == "out" else f"message.{name}.present"
            term = f"    sum = sum + {self.length(use)};\n"
            sum_rows += f"    if ({wanted})\n    {term}" if use.nullable else term
        # Outputs of a constant length, wanted always, do not look at the request.
        both = f" && reply.api != {self.thread}" if self.thread != self.legacy else ""
        total = (f"    Length sum(0);\n{sum_rows}    if (!sum.valid())\n"
                 f'        return refuse({self.context("request")}, "", "the outputs are larger than memory");\n'
                 f"    return sum.value();\n") if self.outputs else "    return 0;\n"
        return (f"Expected<std::uint64_t> output_size([[maybe_unused]] const {self.name}Request &message) {{\n{total}}}\n\n"
                f"Expected<void> check([[maybe_unused]] const {self.name}Request &request, const {self.name}Reply &reply) {{\n"
                f"    constexpr auto context = {self.context('reply')};\n"
                f"    if (reply.api != {self.legacy}{both})\n"
                f'        return refuse(context, "", "it is for another function");\n{rows}    return {{}};\n}}\n\n')

    def encode_reply(self):
        rows = "    wire.driver_result = reply.driver_result;\n"
        buffers = ""
        for bit, use in enumerate(self.outputs):
            name = use.parameter.name
            rows += (f"    wire.present |= static_cast<std::uint32_t>(reply.{name}.present) << {bit};\n"
                     f"    wire.{name}_size = reply.{name}.present ? reply.{name}.bytes.size() : 0;\n")
            buffers += f"    writer.buffer(reply.{name});\n"
        return (f"Expected<std::size_t> encode(const {self.name}Request &request, const {self.name}Reply &reply, "
                f"std::span<std::byte> storage) {{\n"
                f"    if (auto ok = check(request, reply); !ok)\n        return propagate(ok);\n"
                f"    {self.name}ReplyWire wire;\n"
                f"    wire.header = {{static_cast<std::uint32_t>(reply.api), static_cast<std::uint32_t>(MessageKind::reply), 0}};\n"
                f"{rows}    Writer writer(storage);\n    writer.fixed(wire);\n{buffers}"
                f"    return writer.finish({self.context('reply')});\n}}\n\n")

    def decode_reply(self):
        rows = (f"    if ((static_cast<std::uint64_t>(wire.present) >> {len(self.outputs)}) != 0)\n"
                f'        return refuse(context, "", "unknown bits in present");\n')
        for bit, use in enumerate(self.outputs):
            name = use.parameter.name
            present = f"((wire.present >> {bit}) & 1) != 0"
            rows += (f"    if (!({present}) && wire.{name}_size != 0)\n"
                     f'        return refuse(context, "{name}", "an absent output has a size");\n'
                     f'    auto {name}_view = reader.buffer("{name}", Length(wire.{name}_size), {present});\n'
                     f"    if (!{name}_view)\n        return propagate({name}_view);\n"
                     f"    reply.{name} = *{name}_view;\n")
        return (f"Expected<{self.name}Reply> decode_{self.name}Reply(const {self.name}Request &request, "
                f"std::span<const std::byte> bytes) {{\n"
                f"    constexpr auto context = {self.context('reply')};\n"
                f"    Reader reader(context, bytes);\n"
                f"    auto fixed = reader.fixed<{self.name}ReplyWire>({self.legacy}, {self.thread});\n"
                f"    if (!fixed)\n        return propagate(fixed);\n"
                f"    const auto &wire = *fixed;\n    {self.name}Reply reply;\n"
                f"    reply.api = static_cast<ApiId>(wire.header.api);\n    reply.driver_result = wire.driver_result;\n{rows}"
                f"    if (auto ok = reader.finish(); !ok)\n        return propagate(ok);\n"
                f"    if (auto ok = check(request, reply); !ok)\n        return propagate(ok);\n"
                f"    return reply;\n}}\n\n")

    # -- from and to the C call

    def call(self):
        def parameters(uses):
            return ", ".join(f"{u.parameter.spelling} {u.parameter.name}" for u in uses)
        rows, late = "", ""
        for use in self.uses:
            name, ctype = use.parameter.name, self.scalar_type(use)[0] if use.role != "struct" else ""
            if use.role == "scalar":
                rows += f"        message.{name} = static_cast<{ctype}>({name});\n"
            elif use.role in ("handle", "old"):
                cast = "reinterpret_cast<std::uintptr_t>" if self.pointer_handle(use) else "static_cast<std::uint64_t>"
                rows += f"        message.{name} = {cast}({name});\n"
            elif use.role == "address":
                rows += f"        message.{name} = reinterpret_cast<std::uintptr_t>({name});\n"
            elif use.role == "struct":
                rows += f"        message.{name} = std::bit_cast<std::array<std::byte, {use.element}>>({name});\n"
            elif use.role == "outlives":
                late += (f"        message.{name} = range_of({name}, {self.length(use)});\n")
            elif use.role == "string":
                rows += f"        message.{name} = view_of_string({name});\n"
            elif use.role == "out" and use.nullable:
                rows += f"        message.want_{name} = {name} != nullptr;\n"
            elif use.role in ("out", "new"):
                rows += (f"        if ({name} == nullptr)\n"
                         f'            return refuse(context, "{name}", "it is NULL; this parameter must point to memory");\n')
                if use.role == "new":
                    rows += f"        message.{name} = new_{name};\n"
            elif use.role == "null":
                rows += (f"        if ({name} != nullptr)\n"
                         f'            return refuse(context, "{name}", "it must be NULL");\n')
        for use in self.ordered:
            if use.role != "string":
                late += f"        message.{use.parameter.name} = view_of({use.parameter.name}, {self.length(use)});\n"
        chosen = "".join(f"std::uint64_t new_{u.parameter.name}, " for u in self.uses if u.role == "new")
        arguments = "ApiId api, " + chosen + parameters(self.uses)
        uses_context = "context" in rows
        out = (f"struct {self.name}Call {{\n"
               f"    static Expected<{self.name}Request> request({arguments.rstrip(', ')}) {{\n"
               + (f"        constexpr auto context = {self.context('request')};\n" if uses_context else "")
               + f"        {self.name}Request message;\n        message.api = api;\n{rows}{late}"
               f"        if (auto ok = check(message); !ok)\n            return propagate(ok);\n"
               f"        return message;\n    }}\n")
        if self.has_reply:
            rows, uses_request = "", False
            for use in self.uses:
                name = use.parameter.name
                if use.role in ("out", "inout"):
                    rows += f"        write_back({name}, reply.{name});\n"
                elif use.role == "new":
                    uses_request = True
                    value = f"request.{name}"
                    if self.pointer_handle(use):
                        value = f"std::bit_cast<{use.parameter.type}>({value})"
                    rows += f"        if (reply.driver_result == 0)\n            *{name} = {value};\n"
            if rows:
                request = f"const {self.name}Request &{'request' if uses_request else ''}"
                out += (f"    static void finish({request}, const {self.name}Reply &reply, "
                        f"{parameters([u for u in self.uses if u.role in WRITTEN])}) {{\n{rows}    }}\n")
        return out + "};\n\n"

    def pointer_handle(self, use):
        return use.parameter.type in self.header.opaque


def messages(header, api, symbols, offsets):
    known = set(symbols)
    return [Message(header, api.functions[s], known, offsets) for s in sorted(api.functions)
            if api.functions[s].api_class in WIRE_CLASSES]


INTRO = "namespace singularity::driver_api {\n\n"
OUTRO = "} // namespace singularity::driver_api\n"


def declarations(items):
    rows = "".join(f"    X({m.name}) \\\n" for m in items)
    replies = "".join(f"    X({m.name}) \\\n" for m in items if m.has_reply)
    return (f'{BANNER}#pragma once\n\n#include "driver_api/api_id.hpp"\n#include "proxy/driver-api/wire.hpp"\n\n{INTRO}'
            + "".join(m.declarations() for m in items) + OUTRO
            + "\n// X(Name) for each message: NameRequest, NameRequestWire, decode_NameRequest.\n"
            f"#define SINGULARITY_DRIVER_API_REQUESTS(X) \\\n{rows}    static_assert(true)\n"
            + "\n// X(Name) for each message that has a reply.\n"
            f"#define SINGULARITY_DRIVER_API_REPLIES(X) \\\n{replies}    static_assert(true)\n")


def definitions(items, part, parts):
    return (f'{BANNER}#include "driver_api/messages.hpp"\n\n{INTRO}'
            + "".join(m.definitions() for m in items[part::parts]) + OUTRO)


def calls(items):
    return (f'{BANNER}// From the arguments of a C call to a request, and from its reply to the caller\'s memory.\n'
            f'#pragma once\n\n#include "driver_api/messages.hpp"\n#include "proxy/libcuda/cuda.hpp"\n\n{INTRO}'
            + "".join(m.call() for m in items) + OUTRO)
