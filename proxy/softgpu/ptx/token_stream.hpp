// SPDX-License-Identifier: GPL-2.0-or-later
// What the parsers of modules and of functions share: the current token, complaints, constant expressions.
#pragma once

#include "common/error.hpp"
#include "ptx/lexer.hpp"
#include "ptx/words.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace singularity::ptx {

// Thrown inside the parser only; parse_module turns it into its result.
struct SyntaxError {
    Error error;
};

[[nodiscard]] Error error_at(std::uint32_t line, std::string why);

// A constant and what kind it is: the type of a number is only known from where it stands.
struct Constant {
    enum class Kind : std::uint8_t { integer, single, twice };
    Kind kind = Kind::integer;
    std::uint64_t bits = 0; // of the integer, the float or the double
};

// The constant's bits as a value of the type; integers of signed types are sign-extended to 64 bits.
[[nodiscard]] std::uint64_t bits_as(const Constant &constant, Type type);

class TokenStream {
  public:
    explicit TokenStream(std::string_view source) : lexer_(source) { advance(); }

    [[nodiscard]] const Token &current() const { return current_; }
    [[nodiscard]] Token peek() const;
    Token advance(); // returns the token that was current
    bool accept(std::string_view text);
    Token expect(std::string_view text);
    std::string_view expect_identifier(std::string_view what);

    // Up to and with the next `;`, or the brace that closes the next `{`.
    void skip_statement();
    void skip_past_semicolon();

    std::uint64_t integer(std::string_view what); // a constant expression that is an integer
    std::uint32_t small_integer(std::string_view what);
    Constant constant();

    [[noreturn]] void complain(std::string why) const;

  private:
    std::uint64_t expression(int level);
    std::uint64_t unary();

    Lexer lexer_;
    Token current_;
    int depth_ = 0;
};

} // namespace singularity::ptx
