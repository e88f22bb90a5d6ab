// SPDX-License-Identifier: GPL-2.0-or-later
// What moves data from device to device without memory of their hosts, where each member of a communicator
// has a device of its own: NVIDIA's NCCL, say.
#pragma once

#include "common/error.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace singularity::collectives {

// What the other members must know of one's end: which device it is, how it is met. All zeros: it has none.
using LinkOffer = std::array<std::byte, 192>;

// One member's end, for the member's thread.
class Link {
  public:
    Link() = default;
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;
    Link(Link &&) = delete;
    Link &operator=(Link &&) = delete;
    virtual ~Link() = default;

    [[nodiscard]] virtual LinkOffer offer(std::uint32_t rank) = 0;
    // Whether those who have offered this, by rank, can meet. All of them come to the same answer.
    [[nodiscard]] virtual bool fits(std::span<const LinkOffer> offers) const = 0;
    // Begins to meet the others. Asked again and again then: whether it has.
    [[nodiscard]] virtual Expected<void> meet(std::span<const LinkOffer> offers, std::uint32_t rank) = 0;
    [[nodiscard]] virtual Expected<bool> met() = 0;

    // What is between begin() and end() goes at once, in order with the mover's copies, and is told of by the
    // same marks. Addresses are the program's, or memory of the device; sizes are bytes.
    [[nodiscard]] virtual Expected<void> begin() = 0;
    [[nodiscard]] virtual Expected<void> send(std::uint32_t to, std::uint64_t from, std::size_t size) = 0;
    [[nodiscard]] virtual Expected<void> receive(std::uint32_t from, std::uint64_t to, std::size_t size) = 0;
    // The others' parts may be waited for, unless that is given up.
    [[nodiscard]] virtual Expected<void> end(const std::function<bool()> &given_up) = 0;

    // An error: what is under way does not come to its end.
    [[nodiscard]] virtual Expected<void> look() = 0;
    // What is under way ends, with whatever is there then; nothing more is begun.
    virtual void abort() = 0;
    // Nothing more is begun here, whatever the others do.
    virtual void leave() = 0;
};

} // namespace singularity::collectives
