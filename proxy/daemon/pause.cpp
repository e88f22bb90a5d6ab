// SPDX-License-Identifier: GPL-2.0-or-later
#include "pause.hpp"

#include "proxy/channel/memory_file.hpp"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

// Allocations that do not touch each other; a program with more of them has other worries.
constexpr std::uint64_t kMostRanges = std::uint64_t{4} << 20;

std::unexpected<Error> broken(std::string why) {
    return failure("take", "a client's list of its device memory", std::move(why), EPROTO);
}

Expected<std::vector<channel::AddressRange>> read_ranges(int fd, std::uint64_t count) {
    if (count > kMostRanges)
        return broken(fmt::format("it has {} ranges; {} are allowed", count, kMostRanges));
    const auto size = count * sizeof(channel::AddressRange);
    auto bytes = channel::from_memory_file(fd, size, size);
    if (!bytes)
        return propagate(bytes);
    std::vector<channel::AddressRange> ranges(count);
    if (size > 0)
        std::memcpy(ranges.data(), bytes->data(), size);
    std::uint64_t end = 0;
    for (const auto &range : ranges) {
        if (range.size == 0 || range.address < end || range.address + range.size < range.address)
            return broken(
                fmt::format("{:#x}+{:#x} is empty, out of order or overlaps", range.address, range.size));
        end = range.address + range.size;
    }
    return ranges;
}

} // namespace

Expected<void> Pause::answered(const channel::Packet &packet) {
    auto said = channel::struct_of<channel::Paused>(packet);
    if (!said)
        return propagate(said);
    said->problem.back() = '\0';
    if (packet.descriptors.size() != (said->problem[0] == '\0' ? 1U : 0U))
        return broken(fmt::format("it comes with {} descriptors", packet.descriptors.size()));
    PausedClient client{.said = *said, .ranges = {}};
    if (!packet.descriptors.empty()) {
        auto ranges = read_ranges(packet.descriptors.front().get(), said->ranges);
        if (!ranges)
            return propagate(ranges);
        client.ranges = std::move(*ranges);
    }
    question_.answered(packet.ticket, std::move(client));
    return {};
}

} // namespace singularity::proxyd
