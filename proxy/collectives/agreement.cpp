// SPDX-License-Identifier: GPL-2.0-or-later
#include "agreement.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace singularity::collectives {

namespace {

std::string text_of(const RoundHead &head) {
    constexpr std::array kWhere{"", " on the device", " from device to device"};
    const auto where = std::to_underlying(head.payload);
    return fmt::format("kind {}, type {}, reduction {}, root {}, count {}{}", head.kind, head.type,
                       head.reduction, head.root, head.count, where < kWhere.size() ? kWhere[where] : "");
}

} // namespace

RoundHead head_of(const protocol::CollectiveOperation &operation, std::uint64_t round, Payload payload) {
    const auto &pattern = kPatterns[operation.kind];
    const bool has_root = pattern.stages == Who::root || pattern.takers == Who::root;
    return {.kind = operation.kind,
            .type = operation.type,
            .reduction = pattern.reduces ? operation.reduction : 0,
            .root = has_root ? operation.peer : 0,
            .count = operation.count,
            .round = round,
            .payload = payload};
}

void say(Group &group, std::uint32_t rank, const RoundHead &head) {
    const auto at = group.shape().staged_at(head.round);
    std::memcpy(group.area(rank).bytes(at, sizeof(head)).data(), &head, sizeof(head));
    group.offer(rank, at, kHead, Group::kEverybody);
}

Expected<void> check_same(Group &group, std::uint32_t rank, const RoundHead &mine, std::uint32_t member) {
    RoundHead theirs;
    const auto at = group.shape().staged_at(mine.round);
    std::memcpy(&theirs, group.area(member).bytes(at, sizeof(theirs)).data(), sizeof(theirs));
    if (theirs == mine)
        return {};
    return failure("carry out", "a collective",
                   fmt::format("ranks do not agree on it: rank {} has issued {}, rank {} has issued {}", rank,
                               text_of(mine), member, text_of(theirs)),
                   EINVAL);
}

Expected<bool> has(const Group &group, std::uint32_t member, std::uint32_t counter, std::uint64_t value) {
    // Order: a member that has left has written everything before.
    const bool left = group.read(member, kLeft) != 0;
    if (group.read(member, counter) >= value)
        return true;
    if (left)
        return has_left(member);
    return false;
}

Expected<bool> all_have(const Group &group, std::uint32_t counter, std::uint64_t value) {
    for (std::uint32_t member = 0; member < group.size(); ++member)
        if (auto there = has(group, member, counter, value); !there || !*there)
            return there;
    return true;
}

std::unexpected<Error> has_left(std::uint32_t rank) {
    return failure("carry out", "a collective", fmt::format("rank {} has left the communicator", rank),
                   ECONNRESET);
}

} // namespace singularity::collectives
