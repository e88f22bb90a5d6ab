// SPDX-License-Identifier: GPL-2.0-or-later
#include "ptx/declarations.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/core.h>

namespace singularity::ptx {

namespace {

// No address space is larger, and sums of such sizes do not overflow.
constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 48U;
constexpr std::uint32_t kMaxAlignment = 1U << 20U;
constexpr int kMaxNesting = 32;

std::uint32_t parse_alignment(TokenStream &tokens) {
    const std::uint32_t alignment = tokens.small_integer("an alignment");
    if (!std::has_single_bit(alignment) || alignment > kMaxAlignment)
        tokens.complain(fmt::format("alignment {} is not a power of two up to {}", alignment, kMaxAlignment));
    return alignment;
}

// The dimensions after a name; the product of them. `[]` counts as 0 and is filled in by the initialiser.
struct Dimensions {
    std::uint64_t elements = 1;
    bool unsized = false;
};

Dimensions parse_dimensions(TokenStream &tokens) {
    Dimensions dimensions;
    while (tokens.accept("[")) {
        if (tokens.accept("]")) {
            dimensions.unsized = true;
            continue;
        }
        const std::uint64_t count = tokens.integer("an array's size");
        tokens.expect("]");
        if (count > kMaxSize || (count != 0 && dimensions.elements > kMaxSize / count))
            tokens.complain(
                fmt::format("an array of {} times {} elements is too large", dimensions.elements, count));
        dimensions.elements *= count;
    }
    return dimensions;
}

class InitialiserParser {
  public:
    InitialiserParser(TokenStream &tokens, DeclaredVariable &declared, std::uint64_t limit)
        : tokens_(tokens), declared_(declared), element_(type_size(declared.variable.type)), limit_(limit) {}

    void parse() {
        if (!tokens_.current().is("{")) {
            value();
            return;
        }
        braces(0);
    }

  private:
    // Rows of an array of arrays are written one after the other; nvcc writes all elements of a row.
    void braces(int nesting) {
        if (nesting > kMaxNesting)
            tokens_.complain("the initialiser is nested too deeply");
        tokens_.expect("{");
        while (!tokens_.accept("}")) {
            if (tokens_.current().is("{"))
                braces(nesting + 1);
            else
                value();
            if (!tokens_.current().is("}"))
                tokens_.expect(",");
        }
    }

    void append(std::uint64_t bits) {
        auto &bytes = declared_.variable.initial;
        if (bytes.size() + element_ > limit_)
            tokens_.complain(fmt::format("{} has more initial values than its {} bytes hold",
                                         quote(declared_.variable.name), limit_));
        for (std::uint32_t i = 0; i < element_; ++i)
            bytes.push_back(static_cast<std::byte>(i < 8 ? bits >> (8U * i) : 0));
    }

    // symbol, symbol+8, generic(symbol)+8, 0xFF00(symbol), 0xFF(generic(symbol)+8)
    void address(std::uint8_t shift, std::uint8_t size) {
        Relocation relocation;
        relocation.offset = declared_.variable.initial.size();
        relocation.size = size;
        relocation.shift = shift;
        const std::uint32_t line = tokens_.current().line;
        std::string_view name = tokens_.expect_identifier("a name");
        if (name == "generic") {
            relocation.generic = true;
            tokens_.expect("(");
            name = tokens_.expect_identifier("a name");
            tokens_.expect(")");
        }
        if (tokens_.current().is("+") || tokens_.current().is("-"))
            relocation.addend = tokens_.integer("an offset");
        declared_.pending.push_back({declared_.variable.relocations.size(), name, line});
        declared_.variable.relocations.push_back(relocation);
        append(0);
    }

    void value() {
        const Token token = tokens_.current();
        if (token.kind == Token::Kind::identifier && token.text != "WARP_SZ") {
            address(0, static_cast<std::uint8_t>(element_));
            return;
        }
        if (token.kind == Token::Kind::number && tokens_.peek().is("(")) {
            const std::uint64_t mask = tokens_.constant().bits;
            const auto shift = static_cast<std::uint8_t>(mask == 0 ? 0 : std::countr_zero(mask));
            if (shift % 8 != 0 || mask >> shift != 0xFF)
                tokens_.complain(fmt::format("mask {:#x} is not one byte", mask));
            tokens_.expect("(");
            address(shift, 1);
            tokens_.expect(")");
            return;
        }
        append(bits_as(tokens_.constant(), declared_.variable.type));
    }

    TokenStream &tokens_;
    DeclaredVariable &declared_;
    std::uint32_t element_;
    std::uint64_t limit_;
};

} // namespace

std::uint64_t align_up(const TokenStream &tokens, std::uint64_t offset, std::uint32_t alignment) {
    const std::uint64_t mask = std::uint64_t{alignment} - 1;
    if (offset > kMaxSize)
        tokens.complain(fmt::format("{} bytes are too many", offset));
    return (offset + mask) & ~mask;
}

std::uint64_t place(const TokenStream &tokens, std::uint64_t &frame, std::uint64_t size,
                    std::uint32_t alignment) {
    const std::uint64_t offset = align_up(tokens, frame, alignment);
    frame = offset + size;
    return offset;
}

Type parse_type(TokenStream &tokens) {
    if (tokens.current().kind == Token::Kind::word)
        if (const auto value = word_value(Field::type, tokens.current().text.substr(1))) {
            tokens.advance();
            return static_cast<Type>(*value);
        }
    tokens.complain(fmt::format("expected a type, found {}", quote(tokens.current().text)));
}

std::vector<DeclaredVariable> parse_variables(TokenStream &tokens, Space space, Linkage linkage) {
    Variable common;
    common.space = space;
    common.linkage = linkage;
    common.line = tokens.current().line;
    std::uint32_t alignment = 0;
    std::uint32_t vector = 1;
    for (;;) {
        if (tokens.accept(".align"))
            alignment = parse_alignment(tokens);
        else if (tokens.accept(".v2"))
            vector = 2;
        else if (tokens.accept(".v4"))
            vector = 4;
        else if (tokens.accept(".attribute")) {
            tokens.expect("(");
            while (!tokens.accept(")")) {
                common.managed |= tokens.current().is(".managed");
                if (tokens.current().kind == Token::Kind::end)
                    tokens.complain("expected ')', found the end");
                tokens.advance();
            }
        } else
            break;
    }
    common.type = parse_type(tokens);
    const std::uint32_t element = type_size(common.type) * vector;
    common.alignment = alignment != 0 ? alignment : std::max(element, 1U);

    std::vector<DeclaredVariable> all;
    do {
        DeclaredVariable &declared = all.emplace_back();
        Variable &variable = declared.variable = common;
        declared.name = tokens.expect_identifier("a variable's name");
        variable.name = declared.name;
        const Dimensions dimensions = parse_dimensions(tokens);
        variable.unsized = dimensions.unsized;
        if (element != 0 && dimensions.elements > kMaxSize / element)
            tokens.complain(fmt::format("{} is too large", quote(variable.name)));
        variable.size = dimensions.unsized ? 0 : dimensions.elements * element;
        if (tokens.accept("=")) {
            InitialiserParser(tokens, declared, dimensions.unsized ? kMaxSize : variable.size).parse();
            if (dimensions.unsized) {
                variable.unsized = false;
                variable.size = variable.initial.size();
            }
        }
    } while (tokens.accept(","));
    tokens.expect(";");
    return all;
}

std::vector<Parameter> parse_parameters(TokenStream &tokens) {
    std::vector<Parameter> parameters;
    std::uint64_t end = 0;
    tokens.expect("(");
    while (!tokens.accept(")")) {
        Parameter parameter;
        const bool in_register = tokens.accept(".reg");
        if (!in_register)
            tokens.expect(".param");
        std::uint32_t alignment = 0;
        for (bool more = true; more;) {
            if (tokens.accept(".align")) {
                (parameter.pointer ? parameter.pointed_alignment : alignment) = parse_alignment(tokens);
            } else if (tokens.accept(".ptr")) {
                parameter.pointer = true;
            } else if (const auto space = parameter.pointer && tokens.current().kind == Token::Kind::word
                                              ? word_value(Field::space, tokens.current().text.substr(1))
                                              : std::nullopt) {
                parameter.pointed_space = static_cast<Space>(*space);
                tokens.advance();
            } else if (parameter.type == Type::none) {
                parameter.type = parse_type(tokens);
            } else {
                more = false;
            }
        }
        parameter.name = tokens.expect_identifier("a parameter's name");
        const Dimensions dimensions = parse_dimensions(tokens);
        const std::uint32_t element = type_size(parameter.type);
        if (element != 0 && dimensions.elements > kMaxSize / element)
            tokens.complain(fmt::format("{} is too large", quote(parameter.name)));
        parameter.size = dimensions.unsized ? 0 : dimensions.elements * element;
        parameter.alignment = alignment != 0 ? alignment : std::max(element, 1U);
        parameter.offset = place(tokens, end, parameter.size, parameter.alignment);
        if (in_register)
            parameter.reg = 0; // the function's parser gives it its slot
        parameters.push_back(std::move(parameter));
        if (!tokens.current().is(")"))
            tokens.expect(",");
    }
    return parameters;
}

} // namespace singularity::ptx
