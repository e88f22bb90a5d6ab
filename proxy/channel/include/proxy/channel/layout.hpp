// SPDX-License-Identifier: GPL-2.0-or-later
// What lies where in the shared-memory segment of one session (one client process, one device).
//
//     page 0       Control: the ring's two positions and the words that sleepers wait on
//     ring         records, each at a multiple of kRecordAlignment, never broken at the ring's end
//     reply slots  a SlotHeader and `inline_size` bytes each
//     pieces       `piece_size` bytes each: replies that are longer than a slot
//
// Positions in the ring count bytes since the session's begin and never wrap; the place is the position
// modulo the ring's size, which is a power of two. Only the client writes `head`, only the daemon `tail`. The
// daemon believes nothing that it reads here: it keeps its own positions and checks what it takes over.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace singularity::channel {

inline constexpr std::uint32_t kNoReply = ~std::uint32_t{0};
inline constexpr std::uint32_t kNoPiece = ~std::uint32_t{0};
inline constexpr std::size_t kRecordAlignment = 64;
inline constexpr std::uint32_t kMaximumSlots = 64;  // one bit each in a 64-bit word
inline constexpr std::uint32_t kMaximumPieces = 64; // the same

// Flags of a record. Bits from kFirstProtocolFlag upwards pass through the channel untouched.
inline constexpr std::uint32_t kPaddingRecord = 1; // nothing in it: the next record is at the ring's begin
inline constexpr std::uint32_t kFirstProtocolFlag = 1U << 8;

// In front of every message in the ring.
struct RecordHeader {
    std::uint32_t size = 0;              // of the message that follows, in bytes
    std::uint32_t reply_slot = kNoReply; // where the answer goes
    std::uint64_t context = 0;           // the client's handle of the context the call is for; 0: none
    std::uint32_t piece = kNoPiece;      // for an answer longer than a slot
    std::uint32_t flags = 0;
    std::uint64_t ticket = 0; // comes back with the answer
};
static_assert(sizeof(RecordHeader) == 32 && std::is_trivially_copyable_v<RecordHeader>);

// Bytes that a record with a message of this size takes in the ring.
[[nodiscard]] constexpr std::size_t record_span(std::size_t message_size) {
    return (sizeof(RecordHeader) + message_size + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

// The daemon's choice; the client learns it from the Welcome.
struct Geometry {
    std::uint32_t ring_size =
        2U << 20; // a power of two, at least two records long: with padding one always fits
    std::uint32_t record_limit = 512U << 10;              // longest message in bytes
    std::uint32_t slots = 64;                             // at most kMaximumSlots
    std::uint32_t inline_size = 4U << 10;                 // bytes of a reply that fit in its slot
    std::uint32_t pieces = 8;                             // at most kMaximumPieces
    std::uint32_t piece_size = (256U << 10) + (4U << 10); // 256 KiB of payload and the reply's fixed part

    bool operator==(const Geometry &) const = default;
};
static_assert(std::is_trivially_copyable_v<Geometry>);

// Values of SlotHeader::state. Between two calls a slot is idle; the client makes it pending before it
// commits the record that names it, so the daemon's answer can never be early.
enum class SlotState : std::uint32_t { // NOLINT(performance-enum-size): a futex word
    idle = 0,
    pending = 1,        // the client may be looking at the word
    pending_asleep = 2, // the client waits in futex(2)
    done = 3,
};

struct alignas(64) SlotHeader {
    std::atomic<std::uint32_t> state; // SlotState
    std::uint32_t size;               // of the reply in bytes
    std::uint64_t ticket;             // of the record that this answers
    std::uint64_t packets;            // sent by the daemon on the session's socket before this reply
    std::uint32_t in_piece;           // 1: the reply lies in the record's piece
};
static_assert(sizeof(SlotHeader) == 64);

struct Control {
    // The client's line.
    alignas(64) std::atomic<std::uint64_t> head; // end of the last record that may be read
    // The daemon's lines.
    alignas(64) std::atomic<std::uint64_t> tail;            // everything before it may be overwritten
    alignas(64) std::atomic<std::uint32_t> consumer_sleeps; // futex word: 1 while the consumer waits for head
    // The client asks to be woken once tail has reached room_wanted.
    alignas(64) std::atomic<std::uint32_t> producer_sleeps; // futex word
    std::atomic<std::uint64_t> room_wanted;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(sizeof(Control) <= 4096);

} // namespace singularity::channel
