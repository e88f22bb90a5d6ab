// SPDX-License-Identifier: GPL-2.0-or-later
// What members say of a collective before anybody touches its payload, in their areas: all must mean the
// same.
#pragma once

#include "group.hpp"
#include "patterns.hpp"

#include <cstdint>

namespace singularity::collectives {

enum class Payload : std::uint64_t { // NOLINT(performance-enum-size): as on the wire
    in_areas = 0,
    on_device = 1,
    linked = 2,
};

// In front of what is staged in a round.
struct RoundHead {
    std::uint32_t kind = 0;
    std::uint32_t type = 0;
    std::uint32_t reduction = 0;
    std::uint32_t root = 0;
    std::uint64_t count = 0;
    std::uint64_t round = 0;
    Payload payload = Payload::in_areas;
    bool operator==(const RoundHead &) const = default;
};
static_assert(sizeof(RoundHead) <= kHead);

[[nodiscard]] RoundHead head_of(const protocol::CollectiveOperation &operation, std::uint64_t round,
                                Payload payload);
// By a member that is here. Others see it with its next counter.
void say(Group &group, std::uint32_t rank, const RoundHead &head);
// Once that member has it staged: an error if it has said something else.
[[nodiscard]] Expected<void> check_same(Group &group, std::uint32_t rank, const RoundHead &mine,
                                        std::uint32_t member);

// true: the member's counter is there. An error: it will never be.
[[nodiscard]] Expected<bool> has(const Group &group, std::uint32_t member, std::uint32_t counter,
                                 std::uint64_t value);
[[nodiscard]] Expected<bool> all_have(const Group &group, std::uint32_t counter, std::uint64_t value);
// Progress needs that member's counter, and it has left: nothing will come.
[[nodiscard]] std::unexpected<Error> has_left(std::uint32_t rank);

} // namespace singularity::collectives
