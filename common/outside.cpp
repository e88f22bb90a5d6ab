// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/outside.hpp"

#include <algorithm>
#include <charconv>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

namespace singularity {
namespace {

constexpr std::uint32_t kAllBits = 32;

std::string_view without_spaces_around(std::string_view text) {
    const auto from = text.find_first_not_of(' ');
    if (from == std::string_view::npos)
        return {};
    return text.substr(from, text.find_last_not_of(' ') - from + 1);
}

template <class Number>
std::optional<Number> decimal(std::string_view text, Number least, Number most) {
    Number out = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
    if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size() || out < least || out > most)
        return std::nullopt;
    return out;
}

constexpr std::uint32_t kAllBits6 = 128;

// No bit beyond the prefix; and nothing of what is IPv4's, or this machine's.
std::optional<OutsideTarget> parse_ipv6(std::string_view text, std::uint16_t port) {
    OutsideTarget out{.address = 0, .prefix = kAllBits6, .port = port, .ipv6 = true, .high = 0, .low = 0};
    if (const auto slash = text.find('/'); slash != std::string_view::npos) {
        const auto prefix = decimal<std::uint32_t>(text.substr(slash + 1), 0, kAllBits6);
        if (!prefix)
            return std::nullopt;
        out.prefix = *prefix;
        text = text.substr(0, slash);
    }
    in6_addr address{};
    if (inet_pton(AF_INET6, std::string(text).c_str(), &address) != 1)
        return std::nullopt;
    for (unsigned byte = 0; byte < 8; ++byte) {
        out.high = out.high << 8 | address.s6_addr[byte];
        out.low = out.low << 8 | address.s6_addr[8 + byte];
    }
    const auto beyond = [](std::uint32_t prefix) { // of 64 bits
        return prefix == 0 ? ~std::uint64_t{0} : (std::uint64_t{1} << (64 - prefix)) - 1;
    };
    const bool host_bits = out.prefix <= 64
                               ? (out.low != 0 || (out.prefix < 64 && (out.high & beyond(out.prefix)) != 0))
                               : (out.prefix < 128 && (out.low & beyond(out.prefix - 64)) != 0);
    const bool is_ipv4 = out.high == 0 && (out.low >> 32 == 0 || out.low >> 32 == 0xffff) && out.prefix != 0;
    return host_bits || is_ipv4 ? std::nullopt : std::optional(out);
}

std::optional<OutsideTarget> parse_target(std::string_view text) {
    if (text.starts_with('[')) {
        const auto end = text.find("]:");
        const auto port = end == std::string_view::npos
                              ? std::nullopt
                              : decimal<std::uint16_t>(text.substr(end + 2), 1, 65535);
        return port ? parse_ipv6(text.substr(1, end - 1), *port) : std::nullopt;
    }
    if (std::ranges::count(text, ':') > 1)
        return parse_ipv6(text, 0);
    OutsideTarget out;
    if (const auto colon = text.find(':'); colon != std::string_view::npos) {
        const auto port = decimal<std::uint16_t>(text.substr(colon + 1), 1, 65535);
        if (!port)
            return std::nullopt;
        out.port = *port;
        text = text.substr(0, colon);
    }
    if (const auto slash = text.find('/'); slash != std::string_view::npos) {
        const auto prefix = decimal<std::uint32_t>(text.substr(slash + 1), 0, kAllBits);
        if (!prefix)
            return std::nullopt;
        out.prefix = *prefix;
        text = text.substr(0, slash);
    }
    in_addr address{};
    if (inet_pton(AF_INET, std::string(text).c_str(), &address) != 1)
        return std::nullopt;
    out.address = ntohl(address.s_addr);
    const std::uint64_t beyond = (std::uint64_t{1} << (kAllBits - out.prefix)) - 1;
    if ((out.address & beyond) != 0)
        return std::nullopt;
    return out;
}

} // namespace

std::optional<Outside> parse_outside(std::string_view text) {
    if (text == "everything")
        return Outside{.everywhere = true, .only = {}};
    Outside out;
    if (text == "nothing")
        return out;
    for (bool more = true; more;) {
        const auto comma = text.find(',');
        more = comma != std::string_view::npos;
        const auto target = parse_target(without_spaces_around(text.substr(0, comma)));
        if (!target || out.only.size() == kOutsideTargets)
            return std::nullopt;
        out.only.push_back(*target);
        if (more)
            text.remove_prefix(comma + 1);
    }
    return out;
}

namespace settings {

std::string expected(const OutsideText & /*type*/) {
    return fmt::format("everything, nothing, or 1 to {} targets with commas between them, each an address, "
                       "a network without host bits, or one of these with a port: 10.0.0.0/8, 192.0.2.7:443, "
                       "2001:db8::/32, [2001:db8::7]:443",
                       kOutsideTargets);
}

std::optional<std::string> value_of(const OutsideText & /*type*/, const Scalar &scalar) {
    return parse_outside(scalar.text) ? std::optional(std::string(scalar.text)) : std::nullopt;
}

std::string to_yaml(const OutsideText & /*type*/, std::string_view value) {
    return to_yaml(Text{.least_bytes = 0, .most_bytes = value.size()}, value);
}

} // namespace settings
} // namespace singularity
