// SPDX-License-Identifier: GPL-2.0-or-later
// Descriptors that came over the session's socket, until the record that names them is read.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace singularity::proxyd {

class Mailbox {
  public:
    // More than this many that no record has asked for: somebody fills the daemon's table of descriptors.
    static constexpr std::size_t kMost = 128;

    [[nodiscard]] Expected<void> put(std::uint64_t ticket, UniqueFd descriptor) {
        const std::scoped_lock lock(lock_);
        if (held_.size() >= kMost || !held_.emplace(ticket, std::move(descriptor)).second)
            return failure("keep descriptor", std::to_string(ticket),
                           "too many are kept, or this number is taken", EPROTO);
        arrived_.notify_all();
        return {};
    }

    // The socket is another way than the ring: the record may be faster.
    [[nodiscard]] Expected<UniqueFd> take(std::uint64_t ticket, const Deadline &deadline) {
        std::unique_lock lock(lock_);
        if (auto waited = wait_until(
                lock, arrived_, [&] { return closed_ || held_.contains(ticket); }, deadline, "a descriptor");
            !waited)
            return propagate(waited);
        const auto found = held_.find(ticket);
        if (found == held_.end())
            return failure("take descriptor", std::to_string(ticket), "the session has ended", ECONNRESET);
        auto descriptor = std::move(found->second);
        held_.erase(found);
        return descriptor;
    }

    // Ends every take().
    void close() {
        const std::scoped_lock lock(lock_);
        closed_ = true;
        arrived_.notify_all();
    }

  private:
    std::mutex lock_;
    std::condition_variable arrived_;
    std::map<std::uint64_t, UniqueFd> held_;
    bool closed_ = false;
};

} // namespace singularity::proxyd
