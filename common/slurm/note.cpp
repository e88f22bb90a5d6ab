// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/slurm/note.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>

#include <fmt/format.h>

namespace singularity::slurm {

namespace {

constexpr std::string_view kBegin = "singularity:";
// A comment is copied with the record of its job whenever somebody asks for that.
constexpr std::size_t kMostKeys = 16;
constexpr std::size_t kLongestValue = 1024;

bool is_key(std::string_view text) {
    return !text.empty() && text.size() <= 32 &&
           std::ranges::all_of(text, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

bool is_value(std::string_view text) {
    return text.size() <= kLongestValue &&
           std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f'; });
}

} // namespace

std::optional<Note> Note::parse(std::string_view admin_comment) {
    Note out;
    if (admin_comment.empty())
        return out;
    if (!admin_comment.starts_with(kBegin))
        return std::nullopt;
    auto rest = admin_comment.substr(kBegin.size());
    while (!rest.empty() && out.values_.size() < kMostKeys) {
        const auto word = rest.substr(0, rest.find(' '));
        rest.remove_prefix(std::min(rest.size(), word.size() + 1));
        const auto equals = std::min(word.find('='), word.size());
        if (is_key(word.substr(0, equals)) && equals < word.size())
            out.set(std::string(word.substr(0, equals)), std::string(word.substr(equals + 1)));
    }
    return out;
}

std::string Note::get(const std::string &key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::string() : found->second;
}

std::optional<std::uint64_t> Note::number(const std::string &key) const {
    const auto text = get(key);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

void Note::set(const std::string &key, const std::string &value) {
    if (value.empty() || !is_value(value))
        values_.erase(key);
    else
        values_[key] = value;
}

Expected<void> Note::take(std::string_view word) {
    const auto equals = std::min(word.find('='), word.size());
    const auto value = word.substr(std::min(word.size(), equals + 1));
    if (equals == word.size() || !is_key(word.substr(0, equals)) || !is_value(value))
        return failure("note", quote(word), "expected KEY=VALUE, without blanks", EINVAL);
    const std::string key(word.substr(0, equals));
    set(key, value == "+1" ? std::to_string(number(key).value_or(0) + 1) : std::string(value));
    return {};
}

std::string Note::text() const {
    std::string out(kBegin);
    for (const auto &[key, value] : values_)
        out += fmt::format(" {}={}", key, value);
    return out;
}

} // namespace singularity::slurm
