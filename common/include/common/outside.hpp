// SPDX-License-Identifier: GPL-2.0-or-later
// Where programs of jobs may connect to outside of their job: network.outside in singularity.yaml.
#pragma once

#include "common/settings.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace singularity {

struct OutsideTarget {
    std::uint32_t address = 0; // IPv4, in host byte order, with no bit set beyond the prefix
    std::uint32_t prefix = 32;
    std::uint16_t port = 0; // TCP and UDP; 0: all ports, and all protocols
    // The two halves of an IPv6 address, with which `address` is 0.
    bool ipv6 = false;
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    static void fields(auto &self, auto &visit) {
        visit(self.address, self.prefix, self.port, self.ipv6, self.high, self.low);
    }
    bool operator==(const OutsideTarget &) const = default;
};

struct Outside {
    bool everywhere = false;
    std::vector<OutsideTarget> only; // if not everywhere; none: nowhere
    [[nodiscard]] bool open() const { return everywhere || !only.empty(); }
    [[nodiscard]] bool open_to_ipv6() const {
        return everywhere || std::ranges::any_of(only, [](const OutsideTarget &one) { return one.ipv6; });
    }
    static void fields(auto &self, auto &visit) { visit(self.everywhere, self.only); }
    bool operator==(const Outside &) const = default;
};

inline constexpr std::size_t kOutsideTargets = 256;

// "everything", "nothing", or targets with commas between them: ADDRESS[/PREFIX][:PORT], for IPv6 with a port
// [ADDRESS[/PREFIX]]:PORT.
[[nodiscard]] std::optional<Outside> parse_outside(std::string_view text);

namespace settings {

// The text, if parse_outside() takes it.
struct OutsideText {};
[[nodiscard]] std::string expected(const OutsideText &type);
[[nodiscard]] std::optional<std::string> value_of(const OutsideText &type, const Scalar &scalar);
[[nodiscard]] std::string to_yaml(const OutsideText &type, std::string_view value);

} // namespace settings
} // namespace singularity
