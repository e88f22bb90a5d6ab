// SPDX-License-Identifier: GPL-2.0-or-later
// What each collective is made of: who gives what, whether that is reduced, who takes what.
#pragma once

#include "proxy/protocol/collective.hpp"

#include <array>
#include <cstdint>
#include <utility>

namespace singularity::collectives {

enum class Who : std::uint8_t { nobody, root, all };
enum class Takes : std::uint8_t {
    nothing,
    roots,   // what the root has staged
    blocks,  // of each member one block, one behind the other
    mine,    // of each member the block that is for me
    result,  // all reduced segments
    my_part, // the reduced segment that is mine
};

struct Pattern {
    Who stages;
    bool block_for_each; // the input has a block for each member
    bool reduces;
    Who takers;
    Takes takes;
};

// In the order of CollectiveKind, up to send.
inline constexpr std::array<Pattern, 8> kPatterns{{
    {Who::root, false, false, Who::all, Takes::roots},  // broadcast
    {Who::all, false, true, Who::root, Takes::result},  // reduce
    {Who::all, false, true, Who::all, Takes::result},   // all_reduce
    {Who::all, false, false, Who::all, Takes::blocks},  // all_gather
    {Who::all, true, true, Who::all, Takes::my_part},   // reduce_scatter
    {Who::all, true, false, Who::all, Takes::mine},     // all_to_all
    {Who::all, false, false, Who::root, Takes::blocks}, // gather
    {Who::root, true, false, Who::all, Takes::mine},    // scatter
}};
static_assert(std::to_underlying(protocol::CollectiveKind::send) == kPatterns.size());

} // namespace singularity::collectives
