// SPDX-License-Identifier: GPL-2.0-or-later
// The operations and data types by name and size.
#pragma once

#include "proxy/nccl/abi.hpp"
#include "proxy/protocol/collective.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace singularity::nccl {

using Kind = protocol::CollectiveKind;

inline constexpr std::array<std::size_t, static_cast<std::size_t>(DataType::end)> kTypeSizes{
    1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
static_assert(kTypeSizes.size() == protocol::kDataTypes);

[[nodiscard]] constexpr bool is_known(DataType type) {
    return type >= DataType::int8 && type < DataType::end;
}
// Bytes of an element of a known type.
[[nodiscard]] constexpr std::size_t size_of(DataType type) {
    return kTypeSizes[static_cast<std::size_t>(type)];
}

// How many elements of `count` a buffer has: so many, or so many for each rank.
enum class Extent : std::uint8_t { none, one, each_rank };
// Who needs it.
enum class Whose : std::uint8_t { everyone, root };

struct BufferRule {
    Extent extent;
    Whose whose = Whose::everyone;
};

// What is special about each operation (nccl.h), in the order of CollectiveKind.
struct KindRules {
    const char *name; // as NCCL's messages have it
    BufferRule input;
    BufferRule output;
    bool reduces = false;
};
inline constexpr std::array<KindRules, std::to_underlying(Kind::end)> kKinds{{
    {"Broadcast", {Extent::one, Whose::root}, {Extent::one}},
    {"Reduce", {Extent::one}, {Extent::one, Whose::root}, true},
    {"AllReduce", {Extent::one}, {Extent::one}, true},
    {"AllGather", {Extent::one}, {Extent::each_rank}},
    {"ReduceScatter", {Extent::each_rank}, {Extent::one}, true},
    {"AlltoAll", {Extent::each_rank}, {Extent::each_rank}},
    {"Gather", {Extent::one}, {Extent::each_rank, Whose::root}},
    {"Scatter", {Extent::each_rank, Whose::root}, {Extent::one}},
    {"Send", {Extent::one}, {Extent::none}},
    {"Recv", {Extent::none}, {Extent::one}},
}};
[[nodiscard]] constexpr const KindRules &rules_of(Kind kind) { return kKinds[std::to_underlying(kind)]; }
[[nodiscard]] constexpr bool is_point_to_point(Kind kind) {
    return kind == Kind::send || kind == Kind::receive;
}

} // namespace singularity::nccl
