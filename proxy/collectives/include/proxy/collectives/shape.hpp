// SPDX-License-Identifier: GPL-2.0-or-later
// Where in a member's area everything lies. All members of a communicator compute the same from its size.
//
// A collective goes in rounds, which all members count alike for the communicator's whole life. In a round
// each member stages its input, may reduce a segment of what all have staged, and takes what is its own.
// kDepth rounds are under way at a time: round g uses place g % kDepth, once all members have consumed round
// g - kDepth. Between two members (send, receive) pieces go through kSlots slots of the sender's area.
#pragma once

#include <cstddef>
#include <cstdint>

namespace singularity::collectives {

inline constexpr std::uint32_t kMostMembers = 1024;
inline constexpr std::uint32_t kDepth = 4;
inline constexpr std::uint32_t kSlots = 2;
// In front of what is staged, and of a piece in a slot: what it belongs to.
inline constexpr std::size_t kHead = 64;
inline constexpr std::size_t kLine = 64;
inline constexpr std::size_t kRoundBytes = std::size_t{512} << 10;

// Each only grows, and only its area's member writes it.
enum Counter : std::uint32_t { // NOLINT(performance-enum-size): as in frames
    kStaged = 0,               // rounds
    kReduced = 1,
    kConsumed = 2,
    kLeft = 3,        // 1: the member has left, and does nothing more
    kFirstOfPair = 8, // pieces sent to each member, then received from each
};

struct Shape {
    std::uint32_t members = 0;
    std::size_t segment = 0; // bytes that one member reduces in a round, at most
    std::size_t slot = 0;    // bytes of one piece between two members, without its head
    std::size_t counters_at = 0;
    std::size_t data_at = 0;
    std::size_t size = 0;

    [[nodiscard]] static constexpr std::size_t up(std::size_t value, std::size_t unit) {
        return (value + unit - 1) / unit * unit;
    }
    [[nodiscard]] static constexpr Shape of(std::uint32_t members) {
        constexpr std::size_t kPage = 4096;
        constexpr std::size_t kAllSlots = std::size_t{8} << 20;
        constexpr std::size_t kLargestSlot = std::size_t{256} << 10;
        Shape shape;
        shape.members = members;
        shape.segment = up(kRoundBytes / members, kLine) + kLine;
        const auto slot = kAllSlots / (std::size_t{kSlots} * members) / kPage * kPage;
        shape.slot = slot < kLargestSlot ? slot : kLargestSlot;
        shape.counters_at = kLine;
        shape.data_at = up(shape.counters_at + (shape.counters() * sizeof(std::uint64_t)), kPage);
        shape.size = up(shape.slot_at(members, 0), kPage);
        return shape;
    }

    [[nodiscard]] constexpr std::size_t counters() const { return kFirstOfPair + (std::size_t{2} * members); }
    [[nodiscard]] static constexpr std::uint32_t sent_to(std::uint32_t rank) { return kFirstOfPair + rank; }
    [[nodiscard]] constexpr std::uint32_t received_from(std::uint32_t rank) const {
        return kFirstOfPair + members + rank;
    }
    // The head of what is staged in a round; the data lies behind it.
    [[nodiscard]] constexpr std::size_t staged_at(std::uint64_t round) const {
        return data_at + (round % kDepth * (kHead + kRoundBytes));
    }
    [[nodiscard]] constexpr std::size_t reduced_at(std::uint64_t round) const {
        return data_at + (kDepth * (kHead + kRoundBytes)) + (round % kDepth * segment);
    }
    // Behind all rounds, in front of all slots.
    [[nodiscard]] constexpr std::size_t slots_at() const {
        return data_at + (kDepth * (kHead + kRoundBytes + segment));
    }
    [[nodiscard]] constexpr std::size_t slot_at(std::uint32_t rank, std::uint64_t piece) const {
        return slots_at() + (((std::size_t{rank} * kSlots) + (piece % kSlots)) * (kHead + slot));
    }
};

} // namespace singularity::collectives
