// SPDX-License-Identifier: GPL-2.0-or-later
// The client's end of a channel. Every member may be called by any thread.
//
//     auto answer = end.prepare_reply(size_of_the_reply);        // only for calls with a reply
//     auto record = end.begin(context, size_of_the_message, &*answer);
//     encode into record->message();
//     record->commit();
//     auto reply = answer->wait();                                // valid until *answer is destroyed
//
// Records reach the daemon in the order of begin(): a thread that has begun keeps the others out until
// commit. So nothing may wait between the two. An error of any member means that the daemon is dead (code
// ENOTCONN) or that the caller asked for more than fits (code EMSGSIZE).
#pragma once

#include "common/error.hpp"
#include "proxy/channel/layout.hpp"
#include "proxy/channel/link.hpp"
#include "proxy/channel/segment.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

namespace singularity::channel {

class ClientEnd;

// What the daemon said to a Hello.
struct Answer {
    std::optional<Welcome> welcome; // exactly one of the two
    std::optional<Refusal> refusal;
    UniqueFd segment; // with the Welcome
};

// Says Hello and waits for the answer. After a refusal the same link may be used for another Hello.
[[nodiscard]] Expected<Answer> say_hello(Link &link, const Hello &hello, const Deadline &deadline);

// The same with Attach.
[[nodiscard]] Expected<Answer> say_attach(Link &link, const Attach &attach, const Deadline &deadline);

struct Reply {
    std::span<const std::byte> message; // in the segment; the client believes the daemon
    // So many packets had been sent to this client when the daemon replied. What the device printed came
    // among them: whoever must have printed it before the call returns waits until that many have been
    // received.
    std::uint64_t packets = 0;
};

// A place for one reply. Destroying one whose record was committed waits for the answer (or the daemon's
// death), since the daemon will write to it.
class Pending {
  public:
    Pending(Pending &&other) noexcept;
    Pending &operator=(Pending &&) = delete;
    Pending(const Pending &) = delete;
    Pending &operator=(const Pending &) = delete;
    ~Pending();

    // Longest reply that fits.
    [[nodiscard]] std::size_t capacity() const;
    // Waits for the answer as long as the daemon lives. The bytes are valid until this object is destroyed.
    [[nodiscard]] Expected<Reply> wait();
    // Whether wait() would return at once.
    [[nodiscard]] bool ready() const;

  private:
    friend class ClientEnd;
    friend class Submission;
    Pending(ClientEnd &end, std::uint32_t slot, std::uint32_t piece)
        : end_(&end), slot_(slot), piece_(piece) {}

    ClientEnd *end_; // nullptr: moved from
    std::uint32_t slot_;
    std::uint32_t piece_;
    std::uint64_t ticket_ = 0;
    bool committed_ = false;
    bool answered_ = false;
};

// A record being written. Holds the order lock until it is committed or destroyed; destroyed without commit
// it was never there.
class Submission {
  public:
    Submission(Submission &&other) noexcept;
    Submission &operator=(Submission &&) = delete;
    Submission(const Submission &) = delete;
    Submission &operator=(const Submission &) = delete;
    ~Submission() = default;

    // Exactly as long as asked for; not zeroed.
    [[nodiscard]] std::span<std::byte> message() const { return message_; }
    void commit() { commit(message_.size()); }
    // The message turned out shorter than asked for.
    void commit(std::size_t used);

  private:
    friend class ClientEnd;
    Submission(ClientEnd &end, std::unique_lock<std::mutex> lock, std::span<std::byte> message,
               std::uint64_t start, const RecordHeader &header, Pending *reply)
        : end_(&end), lock_(std::move(lock)), message_(message), start_(start), header_(header),
          reply_(reply) {}

    ClientEnd *end_;
    std::unique_lock<std::mutex> lock_;
    std::span<std::byte> message_;
    std::uint64_t start_; // position of the record
    RecordHeader header_;
    Pending *reply_;
};

struct ClientStatistics {
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;      // of messages
    std::uint64_t full_waits = 0; // begin() had to wait for room
    std::uint64_t wake_ups = 0;   // commit() had to wake the daemon
};

// Not movable: Pending and Submission point to it. Outlives all of them.
class ClientEnd {
  public:
    ClientEnd(Segment segment, Link link) : segment_(std::move(segment)), link_(std::move(link)) {
        free_slots_ = low_bits(segment_.geometry().slots);
        free_pieces_ = low_bits(segment_.geometry().pieces);
    }
    ClientEnd(const ClientEnd &) = delete;
    ClientEnd &operator=(const ClientEnd &) = delete;
    ClientEnd(ClientEnd &&) = delete;
    ClientEnd &operator=(ClientEnd &&) = delete;
    ~ClientEnd() = default;

    [[nodiscard]] const Geometry &geometry() const { return segment_.geometry(); }
    // The caller receives (in its watcher thread); anybody may send.
    [[nodiscard]] Link &link() { return link_; }

    // A record for a message of `size` bytes. Waits for room. With a reply: `reply` must live until it is
    // answered and must not be moved between begin() and commit().
    [[nodiscard]] Expected<Submission> begin(std::uint64_t context, std::size_t size,
                                             Pending *reply = nullptr, std::uint32_t protocol_flags = 0);

    // A place for a reply of up to `expected` bytes. Waits while all are in use; a thread that holds one
    // already must ask for more with try_prepare_reply, or two threads could wait for each other.
    [[nodiscard]] Expected<Pending> prepare_reply(std::size_t expected);
    // nullopt: all are in use.
    [[nodiscard]] Expected<std::optional<Pending>> try_prepare_reply(std::size_t expected);

    // --- While an image of the session is saved or restored
    // Calls stop in front of begin() until the gate opens; those that have begun go on. The ring's position
    // behind the last of them.
    [[nodiscard]] std::uint64_t close_gate();
    void open_gate();
    // While one lives, the thread's calls go through closed gates.
    class PassGate {
      public:
        PassGate() : before_(std::exchange(passes_gate, true)) {}
        ~PassGate() { passes_gate = before_; }
        PassGate(const PassGate &) = delete;
        PassGate &operator=(const PassGate &) = delete;
        PassGate(PassGate &&) = delete;
        PassGate &operator=(PassGate &&) = delete;

      private:
        bool before_;
    };
    // With a closed gate, and nobody else using the link. The segment becomes memory of this process, in
    // which replies can still be read; the socket is closed.
    [[nodiscard]] Expected<void> detach();
    // Another daemon's, of the same geometry.
    [[nodiscard]] Expected<void> attach(Segment segment, Link link);
    // The daemon that was to be attached to is gone: what waits for it fails, the gate stays closed.
    void lose_link() noexcept;

    // The daemon is gone: every wait, now and later, ends with an error. Async-safe against all other
    // members.
    void mark_dead() noexcept;
    [[nodiscard]] bool dead() const { return dead_.load(std::memory_order_acquire); }

    [[nodiscard]] ClientStatistics statistics() const;

  private:
    friend class Pending;
    friend class Submission;

    [[nodiscard]] static std::uint64_t low_bits(std::uint32_t count) {
        return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
    }
    // With order_ held: waits until [head_, head_ + span) is free, the gate closes or the daemon dies;
    // whether it is free.
    [[nodiscard]] bool wait_for_room(std::uint64_t span);
    [[nodiscard]] bool shut_out() const { return gated_.load(std::memory_order_acquire) && !passes_gate; }
    void publish(std::uint64_t head);
    void wake_all() noexcept;
    [[nodiscard]] Expected<bool> needs_piece(std::size_t expected) const;
    [[nodiscard]] std::unexpected<Error> death() const;
    [[nodiscard]] std::optional<Pending> take(bool with_piece); // with free_ held
    void give_back(std::uint32_t slot, std::uint32_t piece);
    [[nodiscard]] bool await(SlotHeader &slot) const; // false: the daemon died

    Segment segment_;
    Link link_;
    std::atomic<bool> dead_ = false;
    std::atomic<bool> gated_ = false;
    std::condition_variable gate_opened_; // with order_
    static thread_local bool passes_gate;

    mutable std::mutex order_; // the ring's producer side
    std::uint64_t head_ = 0;
    std::uint64_t tail_ = 0; // as last read
    std::uint64_t next_ticket_ = 1;
    ClientStatistics statistics_;

    std::mutex free_; // the free lists
    std::condition_variable freed_;
    std::uint64_t free_slots_ = 0;
    std::uint64_t free_pieces_ = 0;
    unsigned waiting_ = 0;
};

} // namespace singularity::channel
