// SPDX-License-Identifier: GPL-2.0-or-later
#include "ptx/token_stream.hpp"

#include "common/text.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <utility>

#include <fmt/core.h>

namespace singularity::ptx {

namespace {

constexpr int kMaxDepth = 100;

std::uint64_t parse_digits(const TokenStream &stream, std::string_view text, std::string_view digits,
                           int base) {
    std::uint64_t value = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (problem != std::errc() || end != digits.data() + digits.size() || digits.empty())
        stream.complain(fmt::format("{} is not a number", quote(text)));
    return value;
}

Constant parse_number(const TokenStream &stream, std::string_view text) {
    const bool prefixed = text.size() > 1 && text[0] == '0';
    const char prefix = prefixed ? text[1] : '\0';
    if (prefix == 'f' || prefix == 'F' || prefix == 'd' || prefix == 'D') {
        const bool single = prefix == 'f' || prefix == 'F';
        if (text.size() != (single ? 10U : 18U))
            stream.complain(fmt::format("{} needs {} digits", quote(text), single ? 8 : 16));
        return {single ? Constant::Kind::single : Constant::Kind::twice,
                parse_digits(stream, text, text.substr(2), 16)};
    }
    const bool hexadecimal = prefix == 'x' || prefix == 'X';
    if (!hexadecimal && text.find_first_of(".eE") != std::string_view::npos) {
        double value = 0;
        const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (problem != std::errc() || end != text.data() + text.size())
            stream.complain(fmt::format("{} is not a number", quote(text)));
        return {Constant::Kind::twice, std::bit_cast<std::uint64_t>(value)};
    }
    std::string_view digits = text;
    if (digits.ends_with('U') || digits.ends_with('u'))
        digits.remove_suffix(1);
    if (hexadecimal)
        return {Constant::Kind::integer, parse_digits(stream, text, digits.substr(2), 16)};
    if (prefix == 'b' || prefix == 'B')
        return {Constant::Kind::integer, parse_digits(stream, text, digits.substr(2), 2)};
    return {Constant::Kind::integer,
            parse_digits(stream, text, digits, digits.size() > 1 && prefixed ? 8 : 10)};
}

struct BinaryOperator {
    std::string_view symbol;
    int level;
    std::uint64_t (*apply)(std::uint64_t, std::uint64_t);
};

// Operators and precedence of C (PTX ISA 9.0, 4.5.4); a level binds tighter than the ones below it. Division
// by zero and shifts by the width or more have no meaning: 0.
constexpr std::array<BinaryOperator, 18> kOperators = {{
    {"||", 0, [](std::uint64_t a, std::uint64_t b) -> std::uint64_t { return (a != 0 || b != 0) ? 1 : 0; }},
    {"&&", 1, [](std::uint64_t a, std::uint64_t b) -> std::uint64_t { return (a != 0 && b != 0) ? 1 : 0; }},
    {"|", 2, [](std::uint64_t a, std::uint64_t b) { return a | b; }},
    {"^", 3, [](std::uint64_t a, std::uint64_t b) { return a ^ b; }},
    {"&", 4, [](std::uint64_t a, std::uint64_t b) { return a & b; }},
    {"==", 5, [](std::uint64_t a, std::uint64_t b) -> std::uint64_t { return a == b ? 1 : 0; }},
    {"!=", 5, [](std::uint64_t a, std::uint64_t b) -> std::uint64_t { return a != b ? 1 : 0; }},
    {"<", 6,
     [](std::uint64_t a, std::uint64_t b) -> std::uint64_t {
         return std::bit_cast<std::int64_t>(a) < std::bit_cast<std::int64_t>(b) ? 1 : 0;
     }},
    {">", 6,
     [](std::uint64_t a, std::uint64_t b) -> std::uint64_t {
         return std::bit_cast<std::int64_t>(a) > std::bit_cast<std::int64_t>(b) ? 1 : 0;
     }},
    {"<=", 6,
     [](std::uint64_t a, std::uint64_t b) -> std::uint64_t {
         return std::bit_cast<std::int64_t>(a) <= std::bit_cast<std::int64_t>(b) ? 1 : 0;
     }},
    {">=", 6,
     [](std::uint64_t a, std::uint64_t b) -> std::uint64_t {
         return std::bit_cast<std::int64_t>(a) >= std::bit_cast<std::int64_t>(b) ? 1 : 0;
     }},
    {"<<", 7, [](std::uint64_t a, std::uint64_t b) -> std::uint64_t { return b < 64 ? a << b : 0; }},
    {">>", 7, [](std::uint64_t a, std::uint64_t b) -> std::uint64_t { return b < 64 ? a >> b : 0; }},
    {"+", 8, [](std::uint64_t a, std::uint64_t b) { return a + b; }},
    {"-", 8, [](std::uint64_t a, std::uint64_t b) { return a - b; }},
    {"*", 9, [](std::uint64_t a, std::uint64_t b) { return a * b; }},
    {"/", 9, [](std::uint64_t a, std::uint64_t b) -> std::uint64_t { return b != 0 ? a / b : 0; }},
    {"%", 9, [](std::uint64_t a, std::uint64_t b) -> std::uint64_t { return b != 0 ? a % b : 0; }},
}};
constexpr int kTightest = 9;

} // namespace

Error error_at(std::uint32_t line, std::string why) {
    return {"read", fmt::format("PTX line {}", line), std::move(why), 0};
}

std::uint64_t bits_as(const Constant &constant, Type type) {
    const std::uint32_t size = type_size(type);
    switch (constant.kind) {
    case Constant::Kind::single:
        return type == Type::f64 ? std::bit_cast<std::uint64_t>(static_cast<double>(
                                       std::bit_cast<float>(static_cast<std::uint32_t>(constant.bits))))
                                 : constant.bits;
    case Constant::Kind::twice:
        return type == Type::f32
                   ? std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(constant.bits)))
                   : constant.bits;
    case Constant::Kind::integer:
        break;
    }
    if (type == Type::pred)
        return constant.bits != 0 ? 1 : 0;
    if (size == 0 || size >= 8)
        return constant.bits;
    const unsigned unused = 64U - 8U * size;
    const std::uint64_t high = constant.bits << unused;
    return is_signed(type) ? std::bit_cast<std::uint64_t>(std::bit_cast<std::int64_t>(high) >> unused)
                           : high >> unused;
}

Token TokenStream::peek() const { return Lexer(lexer_).next(); }

Token TokenStream::advance() {
    Token taken = current_;
    current_ = lexer_.next();
    if (current_.kind == Token::Kind::bad)
        complain(fmt::format("{} is not PTX", quote(current_.text)));
    return taken;
}

bool TokenStream::accept(std::string_view text) {
    if (!current_.is(text))
        return false;
    advance();
    return true;
}

Token TokenStream::expect(std::string_view text) {
    if (!current_.is(text))
        complain(fmt::format("expected '{}', found {}", text,
                             current_.kind == Token::Kind::end ? "the end" : quote(current_.text)));
    return advance();
}

std::string_view TokenStream::expect_identifier(std::string_view what) {
    if (current_.kind != Token::Kind::identifier)
        complain(fmt::format("expected {}, found {}", what,
                             current_.kind == Token::Kind::end ? "the end" : quote(current_.text)));
    return advance().text;
}

void TokenStream::skip_past_semicolon() {
    while (!current_.is(";")) {
        if (current_.kind == Token::Kind::end)
            complain("expected ';', found the end");
        advance();
    }
    advance();
}

void TokenStream::skip_statement() {
    for (std::size_t open = 0;;) {
        if (current_.kind == Token::Kind::end)
            complain("expected ';' or '}', found the end");
        const Token token = advance();
        if (token.is("{"))
            ++open;
        if (open == 0 && token.is(";"))
            return;
        if (!token.is("}"))
            continue;
        if (open <= 1)
            return;
        --open;
    }
}

std::uint64_t TokenStream::unary() {
    if (++depth_ > kMaxDepth)
        complain("the expression is nested too deeply");
    std::uint64_t value = 0;
    if (accept("-"))
        value = 0 - unary();
    else if (accept("+"))
        value = unary();
    else if (accept("~"))
        value = ~unary();
    else if (accept("!"))
        value = unary() == 0 ? 1 : 0;
    else if (accept("(")) {
        if (accept(".s64") || accept(".u64")) {
            expect(")");
            value = unary();
        } else {
            value = expression(0);
            expect(")");
        }
    } else if (accept("WARP_SZ")) {
        value = 32;
    } else if (current_.kind == Token::Kind::number) {
        const Constant number = parse_number(*this, current_.text);
        if (number.kind != Constant::Kind::integer)
            complain(fmt::format("{} is not an integer", quote(current_.text)));
        advance();
        value = number.bits;
    } else {
        complain(fmt::format("expected a number, found {}", quote(current_.text)));
    }
    --depth_;
    return value;
}

std::uint64_t TokenStream::expression(int level) {
    if (level > kTightest)
        return unary();
    std::uint64_t left = expression(level + 1);
    for (;;) {
        const BinaryOperator *found = nullptr;
        for (const BinaryOperator &candidate : kOperators)
            if (candidate.level == level && current_.kind == Token::Kind::symbol &&
                current_.text == candidate.symbol)
                found = &candidate;
        if (found == nullptr)
            return left;
        advance();
        left = found->apply(left, expression(level + 1));
    }
}

std::uint64_t TokenStream::integer(std::string_view what) {
    if (current_.kind == Token::Kind::end)
        complain(fmt::format("expected {}, found the end", what));
    depth_ = 0;
    return expression(0);
}

std::uint32_t TokenStream::small_integer(std::string_view what) {
    const std::uint64_t value = integer(what);
    if (value > UINT32_MAX)
        complain(fmt::format("{} is {}, more than {}", what, value, UINT32_MAX));
    return static_cast<std::uint32_t>(value);
}

Constant TokenStream::constant() {
    const bool negative = current_.is("-");
    const Token number = negative ? peek() : current_;
    if (number.kind == Token::Kind::number) {
        Constant value = parse_number(*this, number.text);
        if (value.kind != Constant::Kind::integer) {
            if (negative) {
                advance();
                value.bits ^=
                    value.kind == Constant::Kind::single ? std::uint64_t{1} << 31U : std::uint64_t{1} << 63U;
            }
            advance();
            return value;
        }
    }
    return {Constant::Kind::integer, integer("a constant")};
}

void TokenStream::complain(std::string why) const {
    throw SyntaxError{error_at(current_.line, std::move(why))};
}

} // namespace singularity::ptx
