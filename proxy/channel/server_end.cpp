// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/channel/server_end.hpp"

#include "proxy/channel/futex.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace singularity::channel {

namespace {

// Between two calls of a busy program less than this passes; a sleep and a wake-up cost about as much.
constexpr std::chrono::microseconds kBusySpin{40};

std::unexpected<Error> broken_ring(std::string why) {
    return failure("read", "the client's ring", std::move(why), EPROTO);
}

constexpr std::uint64_t bit(std::uint32_t index) { return std::uint64_t{1} << index; }

} // namespace

void copy_once(std::span<std::byte> to, std::span<const std::byte> from) noexcept {
    const std::size_t size = std::min(to.size(), from.size());
    if (size == 0)
        return;
    std::memcpy(to.data(), from.data(), size);
    // The compiler must take it that the copy's memory was read and changed here: it cannot look at the
    // source instead of the copy afterwards.
    asm volatile("" : : "r"(to.data()) : "memory");
}

Expected<std::unique_ptr<ServerEnd>> ServerEnd::create(const Geometry &geometry) {
    auto segment = Segment::create(geometry);
    if (!segment)
        return propagate(segment);
    return std::unique_ptr<ServerEnd>(new ServerEnd(std::move(segment->first), std::move(segment->second)));
}

bool ServerEnd::wait_for_head(const Deadline &deadline) {
    auto &control = segment_.control();
    const auto arrived = [&] {
        return control.head.load(std::memory_order_seq_cst) != read_ || interrupted();
    };
    if (recently_active_ ? spin_until(arrived, kBusySpin) : arrived())
        return true;
    recently_active_ = false;
    while (!deadline.expired()) {
        control.consumer_sleeps.store(1, std::memory_order_seq_cst);
        if (!arrived())
            futex_wait(control.consumer_sleeps, 1,
                       std::min<std::chrono::nanoseconds>(kLongestSleep, deadline.remaining()));
        control.consumer_sleeps.store(0, std::memory_order_relaxed);
        if (arrived())
            return true;
    }
    return false;
}

Expected<std::optional<Record>> ServerEnd::next(const Deadline &deadline) {
    for (;;) {
        if (interrupted())
            return std::nullopt;
        if (read_ == head_) {
            if (!wait_for_head(deadline) || interrupted())
                return std::nullopt;
            // Taken over once; from here on only the copy counts.
            const std::uint64_t head = segment_.control().head.load(std::memory_order_acquire);
            std::uint64_t tail = 0;
            {
                const std::scoped_lock lock(room_);
                tail = tail_;
            }
            if (head % kRecordAlignment != 0 || head - read_ > segment_.ring().size() - (read_ - tail))
                return broken_ring(fmt::format(
                    "it says that it ends at {:#x}; it was read up to {:#x}, room is given back up to {:#x}",
                    head, read_, tail));
            head_ = head;
            recently_active_ = true;
        }
        auto record = take();
        if (!record)
            return propagate(record);
        if (!record->has_value())
            continue;
        const Record &taken = **record;
        // Very many records are still in use (late copies): the oldest must be released first.
        if (!hand_out(taken.end)) {
            const auto room = [this] {
                const std::scoped_lock lock(room_);
                return newest_ - oldest_ < kOutstandingLimit;
            };
            if (auto waited = wait_until(room, deadline, "the release of a record"); !waited)
                return std::nullopt;
            static_cast<void>(hand_out(taken.end));
        }
        if (auto claimed = claim(taken.header); !claimed)
            return propagate(claimed);
        read_ = taken.end;
        return record;
    }
}

Expected<std::optional<Record>> ServerEnd::take() {
    const auto ring = segment_.ring();
    const std::uint64_t place = read_ & (ring.size() - 1);
    const std::uint64_t there = std::min<std::uint64_t>(head_ - read_, ring.size() - place);
    Record record;
    // Alignment leaves at least 64 bytes wherever there is anything.
    copy_once(std::as_writable_bytes(std::span(&record.header, 1)),
              ring.subspan(place, sizeof(RecordHeader)));
    const auto &header = record.header;
    if ((header.flags & kPaddingRecord) != 0) {
        if (header.size + sizeof(RecordHeader) != ring.size() - place || there != ring.size() - place)
            return broken_ring(fmt::format("padding of {} bytes at {:#x} does not end where the ring ends",
                                           header.size, place));
        // Its room comes back with that of the record behind it.
        read_ += there;
        return std::nullopt;
    }
    if (header.size > segment_.geometry().record_limit || record_span(header.size) > there)
        return broken_ring(
            fmt::format("a record at {:#x} says that it has {} bytes; {} are there, at most {} are allowed",
                        place, header.size, there, segment_.geometry().record_limit));
    record.message = ring.subspan(place + sizeof(RecordHeader), header.size);
    record.end = read_ + record_span(header.size);
    return record;
}

Expected<void> ServerEnd::claim(const RecordHeader &header) {
    if (header.reply_slot == kNoReply) {
        if (header.piece != kNoPiece)
            return broken_ring(fmt::format("a record without reply names piece {}", header.piece));
        return {};
    }
    if (header.reply_slot >= segment_.geometry().slots)
        return broken_ring(
            fmt::format("a record names reply slot {} of {}", header.reply_slot, segment_.geometry().slots));
    if (header.piece != kNoPiece && header.piece >= segment_.geometry().pieces)
        return broken_ring(
            fmt::format("a record names piece {} of {}", header.piece, segment_.geometry().pieces));
    // Two answers in one place would be the client's own loss, but also a second waiter for one slot here.
    if ((busy_slots_.fetch_or(bit(header.reply_slot), std::memory_order_acq_rel) & bit(header.reply_slot)) !=
        0)
        return broken_ring(fmt::format("reply slot {} still waits for another answer", header.reply_slot));
    if (header.piece != kNoPiece &&
        (busy_pieces_.fetch_or(bit(header.piece), std::memory_order_acq_rel) & bit(header.piece)) != 0)
        return broken_ring(fmt::format("piece {} still waits for another answer", header.piece));
    return {};
}

bool ServerEnd::hand_out(std::uint64_t end) {
    const std::scoped_lock lock(room_);
    if (newest_ - oldest_ >= kOutstandingLimit)
        return false;
    outstanding_[newest_++ % kOutstandingLimit] = {.end = end, .released = false};
    return true;
}

void ServerEnd::release(const Record &record) {
    const std::scoped_lock lock(room_);
    // Ends grow; the record is nearly always the oldest.
    for (std::uint64_t n = oldest_; n != newest_; ++n)
        if (auto &entry = outstanding_[n % kOutstandingLimit]; entry.end == record.end) {
            entry.released = true;
            break;
        }
    const auto before = tail_;
    while (oldest_ != newest_ && outstanding_[oldest_ % kOutstandingLimit].released)
        tail_ = outstanding_[oldest_++ % kOutstandingLimit].end;
    if (tail_ != before)
        publish_tail();
}

void ServerEnd::publish_tail() {
    auto &control = segment_.control();
    static_cast<void>(control.tail.exchange(tail_, std::memory_order_seq_cst));
    if (control.producer_sleeps.load(std::memory_order_seq_cst) == 0)
        return;
    // The client's wish may be nonsense; then it sleeps until its own limit.
    if (tail_ < control.room_wanted.load(std::memory_order_relaxed))
        return;
    if (control.producer_sleeps.exchange(0, std::memory_order_seq_cst) != 0)
        futex_wake(control.producer_sleeps);
}

bool ServerEnd::consumed(std::uint64_t position) {
    const std::scoped_lock lock(room_);
    return tail_ >= position;
}

void ServerEnd::interrupt() noexcept {
    interrupted_.store(true, std::memory_order_seq_cst);
    // The word may have any value by the client's doing; the sleeper is woken whatever it is.
    futex_wake(segment_.control().consumer_sleeps);
}

std::size_t ServerEnd::reply_capacity(const RecordHeader &header) const {
    if (header.reply_slot == kNoReply)
        return 0;
    const std::size_t in_slot = segment_.geometry().inline_size;
    return header.piece == kNoPiece ? in_slot
                                    : std::max<std::size_t>(in_slot, segment_.geometry().piece_size);
}

Expected<std::span<std::byte>> ServerEnd::reply_space(const RecordHeader &header, std::size_t size) const {
    if (header.reply_slot == kNoReply)
        return failure("answer", "the client", "it left no place for an answer", EPROTO);
    if (size <= segment_.geometry().inline_size)
        return segment_.slot_bytes(header.reply_slot).first(size);
    if (header.piece == kNoPiece || size > segment_.geometry().piece_size)
        return failure(
            "answer", "the client",
            fmt::format("the answer has {} bytes; it left room for {}", size, reply_capacity(header)),
            EPROTO);
    return segment_.piece(header.piece).first(size);
}

void ServerEnd::finish_reply(const RecordHeader &header, std::size_t size, std::uint64_t packets) {
    auto &slot = segment_.slot(header.reply_slot);
    slot.size = static_cast<std::uint32_t>(size);
    slot.ticket = header.ticket;
    slot.packets = packets;
    slot.in_piece = size > segment_.geometry().inline_size ? 1 : 0;
    // Free before the client can know: its next record may name the slot at once.
    if (header.piece != kNoPiece)
        busy_pieces_.fetch_and(~bit(header.piece), std::memory_order_acq_rel);
    busy_slots_.fetch_and(~bit(header.reply_slot), std::memory_order_acq_rel);
    const auto before = slot.state.exchange(std::to_underlying(SlotState::done), std::memory_order_acq_rel);
    if (before == std::to_underlying(SlotState::pending_asleep))
        futex_wake(slot.state);
}

Expected<void> ServerEnd::reply(const RecordHeader &header, std::span<const std::byte> message,
                                std::uint64_t packets) {
    auto space = reply_space(header, message.size());
    if (!space)
        return propagate(space);
    std::ranges::copy(message, space->begin());
    finish_reply(header, message.size(), packets);
    return {};
}

} // namespace singularity::channel
