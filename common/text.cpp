// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>

namespace singularity {
namespace {

struct Character {
    char32_t code_point = 0;
    std::size_t bytes = 0; // 0: the text does not start with a character of well-formed UTF-8
};

// The well-formed sequences of the Unicode Standard, table 3-7, by lead byte. The range of the second byte is
// what excludes overlong forms, surrogates and code points above U+10FFFF.
struct Utf8Form {
    std::uint8_t lead_first, lead_last, second_first, second_last;
    std::uint8_t bytes;
    std::uint8_t lead_bits; // the part of the lead byte that belongs to the code point
};
constexpr Utf8Form kUtf8Forms[] = {
    {0xc2, 0xdf, 0x80, 0xbf, 2, 0x1f}, {0xe0, 0xe0, 0xa0, 0xbf, 3, 0x0f}, {0xe1, 0xec, 0x80, 0xbf, 3, 0x0f},
    {0xed, 0xed, 0x80, 0x9f, 3, 0x0f}, {0xee, 0xef, 0x80, 0xbf, 3, 0x0f}, {0xf0, 0xf0, 0x90, 0xbf, 4, 0x07},
    {0xf1, 0xf3, 0x80, 0xbf, 4, 0x07}, {0xf4, 0xf4, 0x80, 0x8f, 4, 0x07},
};

Character first_character(std::string_view text) {
    const auto byte = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
    const std::uint8_t lead = byte(0);
    if (lead < 0x80)
        return {lead, 1};
    const auto *const form = std::ranges::find_if(
        kUtf8Forms, [lead](const Utf8Form &f) { return lead >= f.lead_first && lead <= f.lead_last; });
    if (form == std::end(kUtf8Forms) || text.size() < form->bytes || byte(1) < form->second_first ||
        byte(1) > form->second_last)
        return {};
    char32_t code_point = lead & form->lead_bits;
    for (std::size_t i = 1; i < form->bytes; ++i) {
        if ((byte(i) & 0xc0) != 0x80)
            return {};
        code_point = (code_point << 6) | (byte(i) & 0x3fU);
    }
    return {code_point, form->bytes};
}

bool is_harmless(char32_t c) {
    constexpr std::pair<char32_t, char32_t> kHarmful[] = {
        {0x00, 0x1f},     {0x7f, 0x9f}, // C0, DEL, C1
        {0x200e, 0x200f}, {0x2028, 0x202e},
        {0x2066, 0x2069}, // direction marks, line separators, embeddings, isolates
        {0xfeff, 0xfeff}, // byte order mark
    };
    return std::ranges::none_of(kHarmful, [c](auto range) { return c >= range.first && c <= range.second; });
}

void append_escape(std::string &out, char32_t c) {
    constexpr std::pair<char32_t, std::string_view> kShort[] = {{'\n', "\\n"}, {'\r', "\\r"}, {'\t', "\\t"}};
    for (const auto &[character, escape] : kShort) {
        if (c == character) {
            out += escape;
            return;
        }
    }
    if (c < 0x80)
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<std::uint32_t>(c));
    else
        fmt::format_to(std::back_inserter(out), "\\u{{{:04x}}}", static_cast<std::uint32_t>(c));
}

// Optimal string alignment distance.
std::size_t distance(std::string_view a, std::string_view b) {
    const std::size_t width = b.size() + 1;
    std::vector<std::size_t> table((a.size() + 1) * width);
    const auto at = [&table, width](std::size_t i, std::size_t j) -> std::size_t & {
        return table[(i * width) + j];
    };
    for (std::size_t i = 0; i <= a.size(); ++i) {
        for (std::size_t j = 0; j <= b.size(); ++j) {
            if (i == 0 || j == 0) {
                at(i, j) = i + j;
                continue;
            }
            const std::size_t replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
            at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
        }
    }
    return at(a.size(), b.size());
}

} // namespace

std::string escaped(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const Character c = first_character(text);
        if (c.bytes == 0)
            fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<std::uint8_t>(text.front()));
        else if (is_harmless(c.code_point))
            out += text.substr(0, c.bytes);
        else
            append_escape(out, c.code_point);
        text.remove_prefix(std::max<std::size_t>(c.bytes, 1));
    }
    return out;
}

std::string quote(std::string_view text) {
    constexpr std::size_t kShown = 80;
    if (text.size() <= kShown)
        return fmt::format("'{}'", escaped(text));
    // Cutting inside a character would show its bytes as if they were invalid.
    std::size_t shown = kShown;
    while (shown > kShown - 4 && (static_cast<std::uint8_t>(text[shown]) & 0xc0) == 0x80)
        --shown;
    return fmt::format("'{}...' ({} bytes)", escaped(text.substr(0, shown)), text.size());
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
    // The table grows with the product of the lengths; beyond any key's length more characters say nothing.
    constexpr std::size_t kCompared = 256;
    std::string_view best;
    auto best_distance = std::numeric_limits<std::size_t>::max();
    for (const std::string_view candidate : candidates) {
        const std::size_t d = distance(word.substr(0, kCompared), candidate.substr(0, kCompared));
        if (d < best_distance) {
            best = candidate;
            best_distance = d;
        }
    }
    return best;
}

std::string byte_count(std::uint64_t bytes) {
    constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    constexpr double kStep = 1024;
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= kStep && unit + 1 < kUnits.size(); ++unit)
        value /= kStep;
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits.at(unit));
}

} // namespace singularity
