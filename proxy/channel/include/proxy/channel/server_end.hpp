// SPDX-License-Identifier: GPL-2.0-or-later
// The daemon's end of a channel. The other side is a user's process that may write anything at any time: what
// is read from the segment is copied once and checked, and the end's own state never lies there.
// An Error of next() or of a reply means that the client broke the rules: end the session.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proxy/channel/layout.hpp"
#include "proxy/channel/segment.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

namespace singularity::channel {

struct Record {
    RecordHeader header; // checked: slot and piece exist and were free, the message lies in the ring
    // In the segment, where the client can change it: copy out (copy_once) what steers anything; pure payload
    // may be used in place until release().
    std::span<const std::byte> message;
    std::uint64_t end = 0; // position behind the record
};

// Copies bytes that another process may be changing: the copy is made exactly once, and the compiler cannot
// read the source again later.
void copy_once(std::span<std::byte> to, std::span<const std::byte> from) noexcept;

// next() and has_more() are for one thread; everything else for any.
class ServerEnd {
  public:
    [[nodiscard]] static Expected<std::unique_ptr<ServerEnd>> create(const Geometry &geometry);

    ServerEnd(const ServerEnd &) = delete;
    ServerEnd &operator=(const ServerEnd &) = delete;
    ServerEnd(ServerEnd &&) = delete;
    ServerEnd &operator=(ServerEnd &&) = delete;
    ~ServerEnd() = default;

    [[nodiscard]] int segment_fd() const { return fd_.get(); }
    [[nodiscard]] const Geometry &geometry() const { return segment_.geometry(); }

    // The next record, or nullopt when the deadline has passed or somebody called interrupt().
    [[nodiscard]] Expected<std::optional<Record>> next(const Deadline &deadline);
    // Whether next() would return a record at once. For the thread that calls next().
    [[nodiscard]] bool has_more() const {
        return segment_.control().head.load(std::memory_order_relaxed) != read_;
    }
    // The record's room may be used again. In any order; the client gets room back in the ring's order.
    void release(const Record &record);
    // Whether everything before this position has been read, and its room given back.
    [[nodiscard]] bool consumed(std::uint64_t position);
    // Makes next() return nullopt soon, now and ever after.
    void interrupt() noexcept;
    [[nodiscard]] bool interrupted() const { return interrupted_.load(std::memory_order_acquire); }

    // Where the reply to a record goes, so that it can be written in place; refuses what does not fit.
    [[nodiscard]] Expected<std::span<std::byte>> reply_space(const RecordHeader &header,
                                                             std::size_t size) const;
    // The longest reply that reply_space() would grant.
    [[nodiscard]] std::size_t reply_capacity(const RecordHeader &header) const;
    // What was written to reply_space(header, size) is complete. packets: see Reply::packets.
    void finish_reply(const RecordHeader &header, std::size_t size, std::uint64_t packets);
    // Both at once.
    [[nodiscard]] Expected<void> reply(const RecordHeader &header, std::span<const std::byte> message,
                                       std::uint64_t packets);

  private:
    // Records that were handed out and not all released; more than this and next() waits for a release.
    static constexpr std::uint64_t kOutstandingLimit = 1024;
    struct Outstanding {
        std::uint64_t end;
        bool released;
    };

    ServerEnd(Segment segment, UniqueFd fd) : segment_(std::move(segment)), fd_(std::move(fd)) {}

    [[nodiscard]] Expected<std::optional<Record>> take();
    [[nodiscard]] bool wait_for_head(const Deadline &deadline);
    [[nodiscard]] Expected<void> claim(const RecordHeader &header);
    [[nodiscard]] bool hand_out(std::uint64_t end); // false: kOutstandingLimit
    void publish_tail();

    Segment segment_;
    UniqueFd fd_;
    std::atomic<bool> interrupted_ = false;

    std::uint64_t read_ = 0;       // next() continues here
    std::uint64_t head_ = 0;       // as last read, checked
    bool recently_active_ = false; // then it pays to look for a while before sleeping

    // Slots and pieces with an unanswered record.
    std::atomic<std::uint64_t> busy_slots_ = 0;
    std::atomic<std::uint64_t> busy_pieces_ = 0;

    std::mutex room_;
    std::uint64_t tail_ = 0;
    std::array<Outstanding, kOutstandingLimit> outstanding_{};
    std::uint64_t oldest_ = 0; // outstanding_[n % kOutstandingLimit] for n in [oldest_, newest_)
    std::uint64_t newest_ = 0;
};

} // namespace singularity::channel
