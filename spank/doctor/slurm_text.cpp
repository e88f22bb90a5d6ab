// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <ranges>

#include <fmt/format.h>

namespace singularity::doctor {

namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kNothing = "(null)";

std::string_view trimmed(std::string_view text) {
    const auto begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos)
        return {};
    return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<std::string_view> parts_of(std::string_view text, std::string_view separators) {
    std::vector<std::string_view> out;
    while (!text.empty()) {
        const auto end = std::min(text.find_first_of(separators), text.size());
        if (const auto one = trimmed(text.substr(0, end)); !one.empty())
            out.push_back(one);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return out;
}

std::string lower(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

std::string_view without_comment(std::string_view line) { return trimmed(line.substr(0, line.find('#'))); }

} // namespace

Settings parse_config(std::string_view text) {
    Settings out;
    for (const auto line : parts_of(text, "\n")) {
        const auto at = line.find('=');
        if (at == std::string_view::npos)
            continue;
        const auto value = trimmed(line.substr(at + 1));
        if (value != kNothing)
            out.emplace(trimmed(line.substr(0, at)), value);
    }
    return out;
}

std::optional<std::time_t> written_at(std::string_view text) {
    constexpr std::string_view kBefore = "Configuration data as of ";
    const auto at = text.find(kBefore);
    if (at == std::string_view::npos)
        return std::nullopt;
    const std::string words(text.substr(at + kBefore.size()));
    std::tm when{};
    when.tm_isdst = -1;
    const char *const end = strptime(words.c_str(), "%Y-%m-%dT%H:%M:%S", &when);
    if (end == nullptr || (*end != '\n' && *end != '\0'))
        return std::nullopt;
    return std::mktime(&when);
}

std::vector<Settings> parse_records(std::string_view text) {
    std::vector<Settings> out;
    for (const auto line : parts_of(text, "\n")) {
        Settings record;
        for (const auto word : parts_of(line, kBlanks))
            if (const auto at = word.find('=');
                at != std::string_view::npos && word.substr(at + 1) != kNothing)
                record.emplace(word.substr(0, at), word.substr(at + 1));
        out.push_back(std::move(record));
    }
    return out;
}

Settings parse_conf(std::string_view text) {
    Settings out;
    for (const auto whole : parts_of(text, "\n"))
        // Values of the files that are read here have no blanks in them.
        for (const auto word : parts_of(without_comment(whole), kBlanks))
            if (const auto at = word.find('='); at != std::string_view::npos)
                out.insert_or_assign(lower(word.substr(0, at)), std::string(word.substr(at + 1)));
    return out;
}

std::optional<std::int64_t> number_of(std::string_view text) {
    text = trimmed(text);
    std::int64_t out = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
    if (parsed.ec != std::errc{})
        return std::nullopt;
    return out;
}

std::uint64_t gpus_of(std::string_view gres) {
    std::uint64_t sum = 0;
    while (!gres.empty()) {
        // Commas inside of brackets list sockets.
        int depth = 0;
        std::size_t end = 0;
        for (; end < gres.size() && (depth > 0 || gres[end] != ','); ++end)
            depth += (gres[end] == '(' ? 1 : 0) - (gres[end] == ')' ? 1 : 0);
        auto one = gres.substr(0, end);
        gres.remove_prefix(std::min(end + 1, gres.size()));
        one = one.substr(0, one.find('('));
        if (!one.starts_with("gpu:"))
            continue;
        const auto count = number_of(one.substr(one.rfind(':') + 1));
        sum += count && *count > 0 ? static_cast<std::uint64_t>(*count) : 0;
    }
    return sum;
}

std::optional<std::string> option_of(std::string_view list, std::string_view name) {
    for (const auto one : parts_of(list, ",")) {
        const auto at = one.find('=');
        if (lower(trimmed(one.substr(0, at))) == name)
            return at == std::string_view::npos ? std::string() : std::string(trimmed(one.substr(at + 1)));
    }
    return std::nullopt;
}

bool has_word(std::string_view list, std::string_view word) {
    return std::ranges::any_of(parts_of(list, ","), [&](std::string_view one) { return lower(one) == word; });
}

std::vector<PlugstackWord> parse_plugstack(std::string_view text) {
    std::vector<PlugstackWord> out;
    std::size_t number = 0;
    for (const auto part : std::views::split(text, '\n')) {
        ++number;
        const auto words = parts_of(without_comment(std::string_view(part.begin(), part.end())), kBlanks);
        if (words.size() >= 2)
            out.push_back({number, lower(words[0]), std::string(words[1])});
    }
    return out;
}

std::uint32_t version_of(std::string_view release) {
    if (const auto at = release.find_last_of(' '); at != std::string_view::npos)
        release.remove_prefix(at + 1);
    const auto parts = parts_of(release, ".-\n");
    constexpr std::size_t kNumbers = 3;
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < kNumbers; ++i) {
        const auto number = i < parts.size() ? number_of(parts[i]) : std::nullopt;
        constexpr std::int64_t kMost = 255;
        if (!number || *number < 0 || *number > kMost)
            return 0;
        out = out << 8U | static_cast<std::uint32_t>(*number);
    }
    return out;
}

std::string release_of(std::uint32_t version) {
    return fmt::format("{}.{:02}.{}", version >> 16U, version >> 8U & 0xffU, version & 0xffU);
}

} // namespace singularity::doctor
