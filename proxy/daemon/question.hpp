// SPDX-License-Identifier: GPL-2.0-or-later
// What a client is asked, and its answer: one thread asks and waits, the daemon's main thread receives.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

namespace singularity::proxyd {

template <class Answer>
class Question {
  public:
    // A number for the question; from here on its answer is waited for.
    [[nodiscard]] std::uint64_t ask() {
        const std::scoped_lock lock(lock_);
        answer_.reset();
        waiting_ = true;
        return ++asked_;
    }

    // what: is waited for, for the error.
    [[nodiscard]] Expected<Answer> wait(const Deadline &deadline, std::string_view what) {
        std::unique_lock lock(lock_);
        auto waited =
            wait_until(lock, changed_, [this] { return closed_ || answer_.has_value(); }, deadline, what);
        waiting_ = false;
        if (!waited)
            return propagate(waited);
        if (!answer_)
            return failure("ask", "the client", "its session has ended", ECONNRESET);
        return *std::exchange(answer_, std::nullopt);
    }

    // An answer to a question that nobody asks any more comes late, which is no rule broken.
    void answered(std::uint64_t ticket, Answer answer) {
        const std::scoped_lock lock(lock_);
        if (!waiting_ || ticket != asked_)
            return;
        answer_ = std::move(answer);
        changed_.notify_all();
    }

    // The session ends: nobody answers any more.
    void close() {
        const std::scoped_lock lock(lock_);
        closed_ = true;
        changed_.notify_all();
    }

  private:
    std::mutex lock_;
    std::condition_variable changed_;
    std::uint64_t asked_ = 0;
    bool waiting_ = false;
    bool closed_ = false;
    std::optional<Answer> answer_;
};

} // namespace singularity::proxyd
