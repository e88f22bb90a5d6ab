// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/channel/client_end.hpp"

#include "proxy/channel/futex.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace singularity::channel {

namespace {

// A reply from an idle daemon takes 2 to 5 us; whoever waits longer waits for the device.
constexpr std::chrono::microseconds kReplySpin{10};
constexpr std::chrono::microseconds kRoomSpin{10};
// Room is asked for in large parts, so that a producer at a full ring is not woken for every record.
constexpr std::uint64_t kRoomStep = 8; // of the ring: an eighth

constexpr std::string_view kChannel = "the device proxy's channel";

std::uint32_t word(SlotState state) { return std::to_underlying(state); }

// Only padding does not carry a message; it fills the ring up to its end.
void write_header(std::span<std::byte> ring, std::uint64_t position, const RecordHeader &header) {
    std::memcpy(ring.data() + (position & (ring.size() - 1)), &header, sizeof(header));
}

} // namespace

namespace {

Expected<Answer> take_answer(Link &link, const Deadline &deadline) {
    auto packet = link.receive(deadline);
    if (!packet)
        return propagate(packet);
    Answer answer;
    if (packet->type == PacketType::refusal) {
        auto refusal = struct_of<Refusal>(*packet);
        if (!refusal)
            return propagate(refusal);
        refusal->text.back() = '\0';
        answer.refusal = *refusal;
        return answer;
    }
    if (packet->type != PacketType::welcome || packet->descriptors.size() != 1)
        return failure("open a session with", "the device proxy",
                       fmt::format("it answers with packet {} and {} descriptors",
                                   std::to_underlying(packet->type), packet->descriptors.size()),
                       EPROTO);
    auto welcome = struct_of<Welcome>(*packet);
    if (!welcome)
        return propagate(welcome);
    welcome->device.name.back() = '\0';
    welcome->device.pci_bus_id.back() = '\0';
    answer.welcome = *welcome;
    answer.segment = std::move(packet->descriptors.front());
    return answer;
}

} // namespace

Expected<Answer> say_hello(Link &link, const Hello &hello, const Deadline &deadline) {
    if (auto sent = link.send_struct(PacketType::hello, 0, hello, deadline); !sent)
        return propagate(sent);
    return take_answer(link, deadline);
}

Expected<Answer> say_attach(Link &link, const Attach &attach, const Deadline &deadline) {
    if (auto sent = link.send_struct(PacketType::attach, 0, attach, deadline); !sent)
        return propagate(sent);
    return take_answer(link, deadline);
}

Pending::Pending(Pending &&other) noexcept
    : end_(std::exchange(other.end_, nullptr)), slot_(other.slot_), piece_(other.piece_),
      ticket_(other.ticket_), committed_(other.committed_), answered_(other.answered_) {}

Pending::~Pending() {
    if (end_ == nullptr)
        return;
    // After the daemon's death nobody writes to the slot, whatever its state is.
    if (committed_ && !answered_)
        static_cast<void>(end_->await(end_->segment_.slot(slot_)));
    end_->give_back(slot_, piece_);
}

std::size_t Pending::capacity() const {
    return piece_ == kNoPiece ? end_->geometry().inline_size : end_->geometry().piece_size;
}

bool Pending::ready() const {
    return end_->segment_.slot(slot_).state.load(std::memory_order_acquire) == word(SlotState::done) ||
           end_->dead();
}

Expected<Reply> Pending::wait() {
    auto &slot = end_->segment_.slot(slot_);
    if (!committed_)
        return failure("wait for a reply on", std::string(kChannel), "no record asked for it", EINVAL);
    if (!answered_ && !end_->await(slot))
        return end_->death();
    answered_ = true;
    const auto bytes = slot.in_piece != 0 && piece_ != kNoPiece ? end_->segment_.piece(piece_)
                                                                : end_->segment_.slot_bytes(slot_);
    if (slot.ticket != ticket_ || slot.size > bytes.size())
        return failure("read a reply on", std::string(kChannel),
                       fmt::format("it answers call {} with {} bytes; call {} was asked, with room for {}",
                                   slot.ticket, slot.size, ticket_, bytes.size()),
                       EPROTO);
    return Reply{.message = bytes.first(slot.size), .packets = slot.packets};
}

Submission::Submission(Submission &&other) noexcept
    : end_(std::exchange(other.end_, nullptr)), lock_(std::move(other.lock_)), message_(other.message_),
      start_(other.start_), header_(other.header_), reply_(other.reply_) {}

void Submission::commit(std::size_t used) {
    header_.size = static_cast<std::uint32_t>(used);
    header_.ticket = end_->next_ticket_++;
    if (reply_ != nullptr) {
        header_.reply_slot = reply_->slot_;
        header_.piece = reply_->piece_;
        reply_->ticket_ = header_.ticket;
        reply_->committed_ = true;
        reply_->answered_ = false;
        // Ordered before the record by the publication below.
        end_->segment_.slot(reply_->slot_).state.store(word(SlotState::pending), std::memory_order_relaxed);
    }
    write_header(end_->segment_.ring(), start_, header_);
    ++end_->statistics_.records;
    end_->statistics_.bytes += used;
    end_->publish(start_ + record_span(used));
    lock_.unlock();
}

std::unexpected<Error> ClientEnd::death() const {
    return failure("use", std::string(kChannel), "the device proxy's process has ended", ENOTCONN);
}

Expected<Submission> ClientEnd::begin(std::uint64_t context, std::size_t size, Pending *reply,
                                      std::uint32_t protocol_flags) {
    if (size > geometry().record_limit)
        return failure(
            "write to", std::string(kChannel),
            fmt::format("the message has {} bytes; {} fit in a record", size, geometry().record_limit),
            EMSGSIZE);
    std::unique_lock lock(order_);
    const auto ring = segment_.ring();
    const std::uint64_t span = record_span(size);
    std::uint64_t padding = 0;
    for (;;) {
        // The limit is for mark_dead(), which takes no lock.
        while (shut_out())
            gate_opened_.wait_for(lock, kLongestSleep);
        if (dead())
            return death();
        const std::uint64_t to_end = ring.size() - (head_ & (ring.size() - 1));
        padding = span > to_end ? to_end : 0;
        if (head_ + padding + span - tail_ <= ring.size() || wait_for_room(padding + span))
            break;
    }
    std::uint64_t start = head_;
    if (padding != 0) {
        // Not published by itself: it becomes visible with the record.
        RecordHeader filler;
        filler.size = static_cast<std::uint32_t>(padding - sizeof(RecordHeader));
        filler.flags = kPaddingRecord;
        write_header(ring, head_, filler);
        start += padding;
    }
    RecordHeader header;
    header.context = context;
    header.flags = protocol_flags & ~(kFirstProtocolFlag - 1);
    return Submission(*this, std::move(lock),
                      ring.subspan((start & (ring.size() - 1)) + sizeof(RecordHeader), size), start, header,
                      reply);
}

bool ClientEnd::wait_for_room(std::uint64_t span) {
    auto &control = segment_.control();
    const std::uint64_t size = segment_.ring().size();
    const auto enough = [&] {
        tail_ = control.tail.load(std::memory_order_seq_cst);
        return head_ + span - tail_ <= size;
    };
    if (enough())
        return true;
    ++statistics_.full_waits;
    if (spin_until(enough, kRoomSpin))
        return true;
    // Never more than the whole ring: everything free is the best that can come.
    const std::uint64_t wanted = head_ + std::min(size, std::max(span, size / kRoomStep)) - size;
    while (!dead() && !shut_out()) {
        control.room_wanted.store(wanted, std::memory_order_relaxed);
        // Sequentially consistent with the daemon's store to tail and its look at this word: one of us sees
        // the other.
        control.producer_sleeps.store(1, std::memory_order_seq_cst);
        if (enough()) {
            control.producer_sleeps.store(0, std::memory_order_relaxed);
            return true;
        }
        futex_wait(control.producer_sleeps, 1, kLongestSleep);
    }
    return false;
}

void ClientEnd::publish(std::uint64_t head) {
    auto &control = segment_.control();
    head_ = head;
    // An exchange is the cheapest full barrier there is: the head must be out before the look at the word.
    static_cast<void>(control.head.exchange(head, std::memory_order_seq_cst));
    if (control.consumer_sleeps.load(std::memory_order_seq_cst) == 0)
        return;
    if (control.consumer_sleeps.exchange(0, std::memory_order_seq_cst) != 0) {
        ++statistics_.wake_ups;
        futex_wake(control.consumer_sleeps);
    }
}

Expected<bool> ClientEnd::needs_piece(std::size_t expected) const {
    if (expected <= geometry().inline_size)
        return false;
    const std::size_t longest = geometry().pieces > 0 ? geometry().piece_size : geometry().inline_size;
    if (expected > longest)
        return failure("wait for a reply on", std::string(kChannel),
                       fmt::format("it may have {} bytes; at most {} fit", expected, longest), EMSGSIZE);
    return true;
}

std::optional<Pending> ClientEnd::take(bool with_piece) {
    if (free_slots_ == 0 || (with_piece && free_pieces_ == 0))
        return std::nullopt;
    const auto slot = static_cast<std::uint32_t>(std::countr_zero(free_slots_));
    free_slots_ &= free_slots_ - 1;
    std::uint32_t piece = kNoPiece;
    if (with_piece) {
        piece = static_cast<std::uint32_t>(std::countr_zero(free_pieces_));
        free_pieces_ &= free_pieces_ - 1;
    }
    return Pending(*this, slot, piece);
}

Expected<Pending> ClientEnd::prepare_reply(std::size_t expected) {
    const auto with_piece = needs_piece(expected);
    if (!with_piece)
        return std::unexpected(with_piece.error());
    std::unique_lock lock(free_);
    for (;;) {
        // In front of a closed gate nobody is told of a daemon that might have followed.
        if (dead() && !shut_out())
            return death();
        if (auto taken = take(*with_piece))
            return std::move(*taken);
        ++waiting_;
        // The limit is for mark_dead(), which takes no lock.
        freed_.wait_for(lock, kLongestSleep);
        --waiting_;
    }
}

Expected<std::optional<Pending>> ClientEnd::try_prepare_reply(std::size_t expected) {
    const auto with_piece = needs_piece(expected);
    if (!with_piece)
        return std::unexpected(with_piece.error());
    const std::scoped_lock lock(free_);
    if (dead() && !shut_out())
        return death();
    return take(*with_piece);
}

void ClientEnd::give_back(std::uint32_t slot, std::uint32_t piece) {
    {
        const std::scoped_lock lock(free_);
        free_slots_ |= std::uint64_t{1} << slot;
        if (piece != kNoPiece)
            free_pieces_ |= std::uint64_t{1} << piece;
        if (waiting_ == 0)
            return;
    }
    freed_.notify_all();
}

bool ClientEnd::await(SlotHeader &slot) const {
    const auto done = [&slot] { return slot.state.load(std::memory_order_acquire) == word(SlotState::done); };
    if (spin_until(done, kReplySpin))
        return true;
    while (!done()) {
        if (dead())
            return false;
        auto expected = word(SlotState::pending);
        // Fails where the answer has come, or where this is a second round: the word says already that we
        // sleep.
        slot.state.compare_exchange_strong(expected, word(SlotState::pending_asleep),
                                           std::memory_order_acq_rel);
        futex_wait(slot.state, word(SlotState::pending_asleep), kLongestSleep);
    }
    return true;
}

thread_local bool ClientEnd::passes_gate = false;

std::uint64_t ClientEnd::close_gate() {
    gated_.store(true, std::memory_order_seq_cst);
    // Who waits for room lets go of the lock.
    futex_wake(segment_.control().producer_sleeps);
    const std::scoped_lock lock(order_);
    return head_;
}

void ClientEnd::open_gate() {
    gated_.store(false, std::memory_order_seq_cst);
    gate_opened_.notify_all();
}

Expected<void> ClientEnd::detach() {
    const std::scoped_lock lock(order_);
    if (auto done = segment_.make_private(); !done)
        return done;
    link_.close();
    dead_.store(false, std::memory_order_seq_cst);
    return {};
}

Expected<void> ClientEnd::attach(Segment segment, Link link) {
    const std::scoped_lock lock(order_);
    if (auto done = segment_.replace(std::move(segment)); !done)
        return done;
    link_.take_over(std::move(link));
    head_ = 0;
    tail_ = 0;
    dead_.store(false, std::memory_order_seq_cst);
    return {};
}

void ClientEnd::lose_link() noexcept {
    dead_.store(true, std::memory_order_seq_cst);
    wake_all();
}

void ClientEnd::mark_dead() noexcept {
    dead_.store(true, std::memory_order_seq_cst);
    gated_.store(false, std::memory_order_seq_cst);
    wake_all();
}

void ClientEnd::wake_all() noexcept {
    futex_wake(segment_.control().producer_sleeps);
    for (std::uint32_t slot = 0; slot < geometry().slots; ++slot)
        futex_wake(segment_.slot(slot).state);
    freed_.notify_all();
    gate_opened_.notify_all();
}

ClientStatistics ClientEnd::statistics() const {
    const std::scoped_lock lock(order_);
    return statistics_;
}

} // namespace singularity::channel
