// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/channel/segment.hpp"

#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::channel {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint32_t kLargestRing = 1U << 30;
constexpr std::uint32_t kLargestPiece = 64U << 20;
constexpr std::uint32_t kSmallestReply = 64;
// Nobody may change the file's size, or allow it again.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr std::size_t round_up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

struct Places {
    std::size_t ring, slots, slot_stride, pieces, size;
};

Places places(const Geometry &geometry) {
    Places at{};
    at.ring = kPage;
    at.slots = round_up(at.ring + geometry.ring_size, kPage);
    at.slot_stride = sizeof(SlotHeader) + round_up(geometry.inline_size, alignof(SlotHeader));
    at.pieces = round_up(at.slots + at.slot_stride * geometry.slots, kPage);
    at.size = round_up(at.pieces + std::size_t{geometry.piece_size} * geometry.pieces, kPage);
    return at;
}

Expected<std::byte *> map_shared(int fd, std::size_t size) {
    void *address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED)
        return std::unexpected(errno_error("map", "the channel's segment"));
    return static_cast<std::byte *>(address);
}

} // namespace

Expected<void> check(const Geometry &geometry) {
    const auto refuse = [](std::string_view member, std::uint64_t value, std::string_view rule) {
        return failure("use", "a channel's geometry", fmt::format("{} is {}; {}", member, value, rule),
                       EINVAL);
    };
    if (!std::has_single_bit(geometry.ring_size) || geometry.ring_size < kPage ||
        geometry.ring_size > kLargestRing)
        return refuse("ring_size", geometry.ring_size, "a power of two from 4 KiB to 1 GiB is expected");
    if (geometry.record_limit < kRecordAlignment ||
        record_span(geometry.record_limit) > geometry.ring_size / 2)
        return refuse("record_limit", geometry.record_limit, "64 bytes to half of the ring are expected");
    if (geometry.slots < 1 || geometry.slots > kMaximumSlots)
        return refuse("slots", geometry.slots, "1 to 64 are expected");
    if (geometry.inline_size < kSmallestReply || geometry.inline_size > kLargestPiece)
        return refuse("inline_size", geometry.inline_size, "64 bytes to 64 MiB are expected");
    if (geometry.pieces > kMaximumPieces)
        return refuse("pieces", geometry.pieces, "at most 64 are expected");
    if (geometry.piece_size % kPage != 0 || geometry.piece_size > kLargestPiece)
        return refuse("piece_size", geometry.piece_size, "whole pages, at most 64 MiB, are expected");
    return {};
}

std::size_t segment_size(const Geometry &geometry) { return places(geometry).size; }

Segment::Segment(std::byte *base, const Geometry &geometry) : base_(base), geometry_(geometry) {
    const auto at = places(geometry);
    ring_at_ = at.ring;
    slots_at_ = at.slots;
    slot_stride_ = at.slot_stride;
    pieces_at_ = at.pieces;
}

Segment::Segment(Segment &&other) noexcept
    : base_(std::exchange(other.base_, nullptr)), geometry_(other.geometry_), ring_at_(other.ring_at_),
      slots_at_(other.slots_at_), slot_stride_(other.slot_stride_), pieces_at_(other.pieces_at_) {}

Segment &Segment::operator=(Segment &&other) noexcept {
    std::swap(base_, other.base_);
    std::swap(geometry_, other.geometry_);
    std::swap(ring_at_, other.ring_at_);
    std::swap(slots_at_, other.slots_at_);
    std::swap(slot_stride_, other.slot_stride_);
    std::swap(pieces_at_, other.pieces_at_);
    return *this;
}

Segment::~Segment() {
    // Fails only for an address that was not mapped.
    if (base_ != nullptr)
        munmap(base_, segment_size(geometry_));
}

Expected<std::pair<Segment, UniqueFd>> Segment::create(const Geometry &geometry) {
    if (auto valid = check(geometry); !valid)
        return propagate(valid);
    UniqueFd fd(memfd_create("singularity-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd)
        return std::unexpected(errno_error("create", "the channel's segment"));
    const auto size = segment_size(geometry);
    if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0)
        return std::unexpected(errno_error("set the size of", "the channel's segment"));
    if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
        return std::unexpected(errno_error("seal", "the channel's segment"));
    auto base = map_shared(fd.get(), size);
    if (!base)
        return propagate(base);
    // Pages of a new memfd are zero, and that is the begin of every object in them: nothing is touched here.
    return std::pair(Segment(*base, geometry), std::move(fd));
}

Expected<Segment> Segment::map(int fd, const Geometry &geometry) {
    if (auto valid = check(geometry); !valid)
        return propagate(valid);
    struct stat about{};
    if (fstat(fd, &about) != 0)
        return std::unexpected(errno_error("look at", "the channel's segment"));
    const auto size = segment_size(geometry);
    if (!std::cmp_equal(about.st_size, size))
        return failure("accept", "the channel's segment",
                       fmt::format("it has {} bytes, its geometry says {}", about.st_size, size), EPROTO);
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & kSeals) != kSeals)
        return failure("accept", "the channel's segment",
                       "it is not a memfd sealed against changing its size", EPROTO);
    auto base = map_shared(fd, size);
    if (!base)
        return propagate(base);
    return Segment(*base, geometry);
}

Expected<void> Segment::move_here(std::byte *memory) {
    const auto size = segment_size(geometry_);
    std::memcpy(memory + slots_at_, base_ + slots_at_, size - slots_at_);
    // At once: whoever reads a reply in the meantime reads the same bytes.
    if (mremap(memory, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, base_) == MAP_FAILED)
        return std::unexpected(errno_error("move", "the channel's segment"));
    return {};
}

Expected<void> Segment::make_private() {
    const auto size = segment_size(geometry_);
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return std::unexpected(errno_error("copy", "the channel's segment"));
    auto moved = move_here(static_cast<std::byte *>(memory));
    if (!moved)
        munmap(memory, size);
    return moved;
}

Expected<void> Segment::replace(Segment other) {
    if (other.geometry_ != geometry_)
        return failure("replace", "the channel's segment", "the other one has another geometry", EPROTO);
    auto moved = move_here(other.base_);
    if (moved)
        other.base_ = nullptr;
    return moved;
}

// The kernel's zeroed pages hold the objects: std::atomic of an integer begins as its bytes are.
Control &Segment::control() const { return *std::launder(reinterpret_cast<Control *>(base_)); }

SlotHeader &Segment::slot(std::uint32_t index) const {
    return *std::launder(reinterpret_cast<SlotHeader *>(base_ + slots_at_ + index * slot_stride_));
}

std::span<std::byte> Segment::slot_bytes(std::uint32_t index) const {
    return {base_ + slots_at_ + index * slot_stride_ + sizeof(SlotHeader), geometry_.inline_size};
}

std::span<std::byte> Segment::piece(std::uint32_t index) const {
    return {base_ + pieces_at_ + std::size_t{index} * geometry_.piece_size, geometry_.piece_size};
}

} // namespace singularity::channel
