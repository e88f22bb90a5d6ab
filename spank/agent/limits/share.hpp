// SPDX-License-Identifier: GPL-2.0-or-later
// What each user has at the moment of what budgets count one by one. A share is taken as long as an object
// lives, or as long as a process runs.
#pragma once

#include "budget.hpp"
#include "common/unique_fd.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <sys/types.h>

namespace singularity::agent {

// Taken whatever the user has already: whoever may be refused is asked about first (no_room_for). For the
// agent's one thread.
class Share {
  public:
    Share() = default;
    Share(Budget what, uid_t uid, std::uint64_t count = 1);
    Share(Share &&other) noexcept
        : what_(other.what_), uid_(other.uid_), count_(std::exchange(other.count_, 0)) {}
    Share &operator=(Share &&other) noexcept {
        std::swap(what_, other.what_);
        std::swap(uid_, other.uid_);
        std::swap(count_, other.count_);
        return *this;
    }
    Share(const Share &) = delete;
    Share &operator=(const Share &) = delete;
    ~Share();

    // What all shares of the user come to.
    [[nodiscard]] static std::uint64_t of(Budget what, uid_t uid);

  private:
    Budget what_{};
    uid_t uid_ = 0;
    std::uint64_t count_ = 0;
};

// For metrics: what all users have together, and what the one has who has the most.
struct Held {
    std::uint64_t by_all = 0;
    std::uint64_t by_one = 0;
};
[[nodiscard]] Held held(Budget what);

// Why the user may not have more of it, which is counted (Budgets::refusal). Nothing: they may.
[[nodiscard]] std::optional<std::string> no_room_for(Budget what, uid_t uid, std::uint64_t more = 1);

// Of something that is done later where its user has no room for it now. That it waits is logged and counted
// once, until its turn has come.
class Turn {
  public:
    // whose: what waits, for the log.
    [[nodiscard]] bool has_come(Budget what, uid_t uid, std::string_view whose);

  private:
    bool waits_ = false;
};

// The share is given back when the process has ended, whoever knows of it until then. Each of these processes
// is a child of the agent's, and ends with a SIGCHLD.
void hold_until_ended(Share share, UniqueFd pidfd);
void forget_ended_processes();

} // namespace singularity::agent
