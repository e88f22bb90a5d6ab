// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/port_range.hpp"

#include <charconv>

#include <fmt/format.h>

namespace singularity {
namespace {

std::optional<std::uint16_t> published_port(std::string_view text) {
    std::uint16_t out = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
    if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size() || out < kLeastPublished)
        return std::nullopt;
    return out;
}

} // namespace

std::optional<PortRange> parse_port_range(std::string_view text) {
    if (text == "nothing")
        return PortRange{};
    const auto hyphen = text.find('-');
    if (hyphen == std::string_view::npos)
        return std::nullopt;
    const auto first = published_port(text.substr(0, hyphen));
    const auto last = published_port(text.substr(hyphen + 1));
    if (!first || !last || *first > *last)
        return std::nullopt;
    return PortRange{.first = *first, .last = *last};
}

namespace settings {

std::string expected(const PortRangeText & /*type*/) {
    return fmt::format("nothing, or a range of TCP ports from {} to 65535, the lower one first: 20000-20999",
                       kLeastPublished);
}

std::optional<std::string> value_of(const PortRangeText & /*type*/, const Scalar &scalar) {
    return parse_port_range(scalar.text) ? std::optional(std::string(scalar.text)) : std::nullopt;
}

std::string to_yaml(const PortRangeText & /*type*/, std::string_view value) {
    return to_yaml(Text{.least_bytes = 0, .most_bytes = value.size()}, value);
}

} // namespace settings
} // namespace singularity
