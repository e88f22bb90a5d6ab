// SPDX-License-Identifier: GPL-2.0-or-later
// The shared-memory segment as a mapping: who it belongs to is ServerEnd's and ClientEnd's matter.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "proxy/channel/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace singularity::channel {

// Checks a geometry against the limits of layout.hpp; the error names the member.
[[nodiscard]] Expected<void> check(const Geometry &geometry);
// Bytes of the whole segment; a multiple of the page size.
[[nodiscard]] std::size_t segment_size(const Geometry &geometry);

// Owns the mapping of one segment. Every address it gives stays valid for its life.
class Segment {
  public:
    // A memfd of the right size, sealed against growing, shrinking and further seals, and its mapping.
    [[nodiscard]] static Expected<std::pair<Segment, UniqueFd>> create(const Geometry &geometry);
    // What came from the other side. Refuses a file of another size or without the seals: a file that shrinks
    // later would kill whoever touches the mapping.
    [[nodiscard]] static Expected<Segment> map(int fd, const Geometry &geometry);

    Segment(Segment &&other) noexcept;
    Segment &operator=(Segment &&other) noexcept;
    Segment(const Segment &) = delete;
    Segment &operator=(const Segment &) = delete;
    ~Segment();

    // From shared to this process's own memory, in place: replies keep their bytes, the ring is empty.
    [[nodiscard]] Expected<void> make_private();
    // Takes the memory of another one, of the same geometry, to where this one is: replies keep their bytes.
    [[nodiscard]] Expected<void> replace(Segment other);

    [[nodiscard]] const Geometry &geometry() const { return geometry_; }
    [[nodiscard]] Control &control() const;
    [[nodiscard]] SlotHeader &slot(std::uint32_t index) const;
    [[nodiscard]] std::span<std::byte> slot_bytes(std::uint32_t index) const;
    [[nodiscard]] std::span<std::byte> piece(std::uint32_t index) const;
    [[nodiscard]] std::span<std::byte> ring() const { return {base_ + ring_at_, geometry_.ring_size}; }

  private:
    Segment(std::byte *base, const Geometry &geometry);
    // Moves memory of the segment's size here, with the replies.
    [[nodiscard]] Expected<void> move_here(std::byte *memory);

    std::byte *base_ = nullptr;
    Geometry geometry_;
    std::size_t ring_at_ = 0;
    std::size_t slots_at_ = 0;
    std::size_t slot_stride_ = 0;
    std::size_t pieces_at_ = 0;
};

} // namespace singularity::channel
