// SPDX-License-Identifier: GPL-2.0-or-later
// Words of PTX text. A Lexer is cheap to copy: a copy looks ahead.
#pragma once

#include <cstdint>
#include <string_view>

namespace singularity::ptx {

struct Token {
    enum class Kind : std::uint8_t {
        end,
        identifier, // %r1, $L__BB0_1, add
        word,       // .global, .f32, .shared::cta; `text` has the dot
        number,     // 12, 0x1F, 0f3F800000, 1.5e3, 7U
        string,     // without its quotes
        symbol,     // one character, or :: << >> <= >= == != && ||
        bad,        // a byte that starts no token, or a string or comment without its end
    };
    Kind kind = Kind::end;
    std::string_view text;
    std::uint32_t line = 0;

    [[nodiscard]] bool is(std::string_view symbol_or_word) const {
        return kind != Kind::string && text == symbol_or_word;
    }
};

class Lexer {
  public:
    // The text must outlive the lexer and its tokens.
    explicit Lexer(std::string_view source) : rest_(source) {}
    Token next();

  private:
    bool skip_blanks();
    Token take(Token::Kind kind, std::size_t length);

    std::string_view rest_;
    std::uint32_t line_ = 1;
};

} // namespace singularity::ptx
