// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/published_places.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

namespace singularity {
namespace {

constexpr std::uint32_t kMostPort = 65535;
constexpr char kThere = '+';
constexpr char kGone = '-';

bool is_plain_name(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
               c == '_' || c == '-';
    });
}

template <class Number>
bool read_number(std::string_view text, Number &out) {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
    return parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
}

std::string_view cut_at(std::string_view &text, char separator) {
    const auto out = text.substr(0, text.find(separator));
    text.remove_prefix(std::min(text.size(), out.size() + 1));
    return out;
}

std::optional<PublishedPlace> place_in(std::string_view text) {
    PublishedPlace out;
    out.step = cut_at(text, '/');
    const auto port = cut_at(text, '/');
    out.node = cut_at(text, '/');
    out.host = cut_at(text, ':');
    if (!is_plain_name(out.step) || !read_number(port, out.port) || !is_plain_name(out.node) ||
        !is_plain_name(out.host) || !read_number(text, out.at) || out.port == 0 || out.port > kMostPort ||
        out.at == 0 || out.at > kMostPort)
        return std::nullopt;
    return out;
}

std::string text_of(const PublishedPlace &place) {
    return fmt::format("{}/{}/{}/{}:{}", place.step, place.port, place.node, place.host, place.at);
}

std::string text_of(std::span<const PublishedPlace> places) {
    std::string out;
    for (const auto &place : places)
        out += (out.empty() ? "" : ",") + text_of(place);
    return out;
}

std::vector<PublishedPlace> all_in(std::string_view text) {
    std::vector<PublishedPlace> out;
    while (!text.empty())
        if (auto place = place_in(cut_at(text, ',')))
            out.push_back(std::move(*place));
    return out;
}

std::string word(char sign, std::span<const PublishedPlace> places) {
    return fmt::format("{}={}{}", kPublishedKey, sign, text_of(places));
}

} // namespace

std::string word_of_places(std::span<const PublishedPlace> places) { return word(kThere, places); }
std::string word_without_places(std::span<const PublishedPlace> places) { return word(kGone, places); }

bool is_word_of_places(std::string_view word) {
    return word.starts_with(kPublishedKey) && word.size() > kPublishedKey.size() + 1 &&
           word[kPublishedKey.size()] == '=' &&
           (word[kPublishedKey.size() + 1] == kThere || word[kPublishedKey.size() + 1] == kGone);
}

std::string with_places(std::string_view kept, std::uint32_t restarts, std::string_view word) {
    auto places = places_in(kept, restarts);
    const auto told = all_in(word.substr(std::min(word.size(), kPublishedKey.size() + 2)));
    if (word.size() > kPublishedKey.size() + 1 && word[kPublishedKey.size() + 1] == kThere) {
        std::erase_if(places, [&](const auto &one) {
            return std::ranges::find(told, one.step, &PublishedPlace::step) != told.end();
        });
        places.insert(places.end(), told.begin(), told.end());
    } else {
        std::erase_if(places, [&](const auto &one) { return std::ranges::find(told, one) != told.end(); });
    }
    std::string out;
    for (const auto &place : places)
        if (const auto next = (out.empty() ? fmt::format("{}:", restarts) : ",") + text_of(place);
            out.size() + next.size() <= kMostPlacesText)
            out += next;
    return out;
}

std::vector<PublishedPlace> places_in(std::string_view kept, std::uint32_t restarts) {
    std::uint32_t run = 0;
    if (!read_number(cut_at(kept, ':'), run) || run != restarts)
        return {};
    return all_in(kept);
}

} // namespace singularity
