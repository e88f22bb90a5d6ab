// SPDX-License-Identifier: GPL-2.0-or-later
#include "publish_option.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>

#include <fmt/format.h>

namespace singularity::spank {

Expected<std::vector<std::uint16_t>> parse_published_ports(std::string_view text, std::string_view option) {
    std::vector<std::uint16_t> out;
    const auto refuse = [&](std::string why) {
        return failure(fmt::format("accept {}", option), std::string(text), std::move(why), EINVAL);
    };
    auto rest = text;
    for (bool more = true; more;) {
        const auto one = rest.substr(0, rest.find(','));
        more = one.size() != rest.size();
        rest.remove_prefix(std::min(rest.size(), one.size() + 1));
        std::uint16_t port = 0;
        const auto parsed = std::from_chars(one.data(), one.data() + one.size(), port);
        if (parsed.ec != std::errc{} || parsed.ptr != one.data() + one.size() || port == 0)
            return refuse(
                fmt::format("'{}' is no TCP port: give numbers from 1 to 65535, with commas between "
                            "several, e.g. {}=6006,8888",
                            one, option));
        if (std::ranges::find(out, port) != out.end())
            return refuse(fmt::format("{} is there twice: give each port once", port));
        if (out.size() == kMostPublished)
            return refuse(fmt::format(
                "it has more than {} ports: give those that are needed at the same time", kMostPublished));
        out.push_back(port);
    }
    return out;
}

} // namespace singularity::spank
