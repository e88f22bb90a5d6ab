// SPDX-License-Identifier: GPL-2.0-or-later
#include "ptx/lexer.hpp"

#include <algorithm>
#include <array>

namespace singularity::ptx {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool starts_name(char c) { return is_letter(c) || c == '_' || c == '$' || c == '%'; }
bool in_name(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '$'; }

std::size_t name_length(std::string_view text, std::size_t start) {
    while (start < text.size() && in_name(text[start]))
        ++start;
    return start;
}

// .shared::cta is one word.
std::size_t word_length(std::string_view text) {
    std::size_t end = name_length(text, 1);
    while (text.substr(end).starts_with("::") && end + 2 < text.size() && in_name(text[end + 2]))
        end = name_length(text, end + 2);
    return end;
}

std::size_t number_length(std::string_view text) {
    std::size_t end = name_length(text, 0);
    const bool prefixed = text.size() > 1 && text[0] == '0' && is_letter(text[1]);
    if (prefixed)
        return end;
    if (end < text.size() && text[end] == '.' && end + 1 < text.size() && is_digit(text[end + 1]))
        end = name_length(text, end + 1);
    if ((text[end - 1] == 'e' || text[end - 1] == 'E') && end + 1 < text.size() &&
        (text[end] == '-' || text[end] == '+'))
        end = name_length(text, end + 1);
    return end;
}

constexpr std::array<std::string_view, 9> kLongSymbols = {
    "::", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||"};
constexpr std::string_view kSymbols = "{}()[]<>,;:@|!+-*/=&^~%?";

} // namespace

// False: a comment does not end.
bool Lexer::skip_blanks() {
    for (;;) {
        std::size_t length = 0;
        while (length < rest_.size() &&
               std::string_view(" \t\r\n\v\f").find(rest_[length]) != std::string_view::npos)
            ++length;
        if (length == 0 && rest_.starts_with("//")) {
            length = std::min(rest_.find('\n'), rest_.size());
        } else if (length == 0 && rest_.starts_with("/*")) {
            const std::size_t end = rest_.find("*/", 2);
            if (end == std::string_view::npos)
                return false;
            length = end + 2;
        }
        if (length == 0)
            return true;
        line_ += static_cast<std::uint32_t>(std::ranges::count(rest_.substr(0, length), '\n'));
        rest_.remove_prefix(length);
    }
}

Token Lexer::take(Token::Kind kind, std::size_t length) {
    const Token token{kind, rest_.substr(0, length), line_};
    rest_.remove_prefix(token.text.size());
    return token;
}

Token Lexer::next() {
    if (!skip_blanks())
        return take(Token::Kind::bad, rest_.size());
    if (rest_.empty())
        return {Token::Kind::end, {}, line_};
    const char first = rest_.front();
    const char second = rest_.size() > 1 ? rest_[1] : '\0';
    if (is_digit(first))
        return take(Token::Kind::number, number_length(rest_));
    if (first == '.' && in_name(second))
        return take(Token::Kind::word, word_length(rest_));
    if (starts_name(first) && (first != '%' || in_name(second)))
        return take(Token::Kind::identifier, name_length(rest_, 1));
    if (first == '"') {
        const std::size_t end = rest_.find_first_of("\"\n", 1);
        if (end == std::string_view::npos || rest_[end] != '"')
            return take(Token::Kind::bad, std::min(end, rest_.size()));
        Token token = take(Token::Kind::string, end + 1);
        token.text = token.text.substr(1, token.text.size() - 2);
        return token;
    }
    for (const std::string_view symbol : kLongSymbols)
        if (rest_.starts_with(symbol))
            return take(Token::Kind::symbol, symbol.size());
    return take(kSymbols.find(first) != std::string_view::npos ? Token::Kind::symbol : Token::Kind::bad, 1);
}

} // namespace singularity::ptx
