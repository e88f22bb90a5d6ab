// SPDX-License-Identifier: GPL-2.0-or-later
// The ports of a host at which those of virtual nodes are reached: network.publish in singularity.yaml.
#pragma once

#include "common/settings.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace singularity {

// TCP, both ends included.
struct PortRange {
    std::uint16_t first = 0; // 0: there are none
    std::uint16_t last = 0;
    [[nodiscard]] bool any() const { return first != 0; }
    [[nodiscard]] bool has(std::uint64_t port) const { return any() && port >= first && port <= last; }
    static void fields(auto &self, auto &visit) { visit(self.first, self.last); }
    bool operator==(const PortRange &) const = default;
};

// Below are ports that root's services have.
inline constexpr std::uint16_t kLeastPublished = 1024;

// "nothing", or FIRST-LAST, from kLeastPublished to 65535.
[[nodiscard]] std::optional<PortRange> parse_port_range(std::string_view text);

namespace settings {

// The text, if parse_port_range() takes it.
struct PortRangeText {};
[[nodiscard]] std::string expected(const PortRangeText &type);
[[nodiscard]] std::optional<std::string> value_of(const PortRangeText &type, const Scalar &scalar);
[[nodiscard]] std::string to_yaml(const PortRangeText &type, std::string_view value);

} // namespace settings
} // namespace singularity
