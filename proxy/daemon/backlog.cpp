// SPDX-License-Identifier: GPL-2.0-or-later
#include "backlog.hpp"

#include <algorithm>
#include <chrono>

namespace singularity::proxyd {

void Backlog::issued(std::uint64_t communicator, std::uint64_t group) {
    const std::scoped_lock lock(lock_);
    groups_.push_back({.communicator = communicator, .group = group, .calls = calls_});
    unfinished_ = groups_.size();
}

void Backlog::completed(std::uint64_t communicator, std::uint64_t group) {
    const std::scoped_lock lock(lock_);
    std::erase_if(groups_,
                  [&](const Group &one) { return one.communicator == communicator && one.group <= group; });
    unfinished_ = groups_.size();
    ++completions_;
    changed_.notify_all();
}

void Backlog::count_behind(const std::function<bool()> &given_up) {
    std::unique_lock lock(lock_);
    ++calls_;
    const auto behind = [this] { return groups_.empty() ? 0 : calls_ - groups_.front().calls; };
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (behind() > kMost && !given_up()) {
        if (behind() < kLast) {
            if (waited_at_ == completions_)
                return;
            if (std::chrono::steady_clock::now() >= until) {
                waited_at_ = completions_;
                return;
            }
        }
        changed_.wait_for(lock, std::chrono::milliseconds(100));
    }
}

bool Backlog::is_unfinished(std::uint64_t communicator, std::uint64_t group) const {
    const std::scoped_lock lock(lock_);
    return std::ranges::any_of(
        groups_, [&](const Group &one) { return one.communicator == communicator && one.group == group; });
}

bool Backlog::wait_for_all(const std::function<bool()> &given_up, std::chrono::milliseconds most) {
    const auto until = std::chrono::steady_clock::now() + most;
    std::unique_lock lock(lock_);
    while (!groups_.empty() && !given_up() && std::chrono::steady_clock::now() < until)
        changed_.wait_for(lock, std::chrono::milliseconds(100));
    return groups_.empty();
}

} // namespace singularity::proxyd
