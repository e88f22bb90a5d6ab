// SPDX-License-Identifier: GPL-2.0-or-later
#include "parked_streams.hpp"

#include <algorithm>

namespace singularity::proxyd {

void ParkedStreams::add(const One &one) {
    const std::scoped_lock lock(lock_);
    all_.push_back(one);
    some_ = true;
}

std::size_t ParkedStreams::count_again(const Backlog &backlog) {
    const std::scoped_lock lock(lock_);
    std::erase_if(all_, [&](const One &one) { return !backlog.is_unfinished(one.member, one.group); });
    std::erase_if(events_, [this](const auto &entry) { return !is_parked(entry.second); });
    some_ = !all_.empty();
    return all_.size();
}

bool ParkedStreams::is_parked(std::uint64_t stream) const {
    return std::ranges::any_of(all_, [&](const One &one) { return one.stream == stream && one.alone; });
}

bool ParkedStreams::has(std::uint64_t stream) const {
    const std::scoped_lock lock(lock_);
    return is_parked(stream);
}

void ParkedStreams::record(std::uint64_t event, std::uint64_t stream) {
    const std::scoped_lock lock(lock_);
    if (is_parked(stream))
        events_[event] = stream;
    else
        events_.erase(event);
}

bool ParkedStreams::comes_after(std::uint64_t event, std::uint64_t but) const {
    const std::scoped_lock lock(lock_);
    const auto found = events_.find(event);
    return found != events_.end() && found->second != but;
}

void ParkedStreams::forget_alone() {
    const std::scoped_lock lock(lock_);
    std::erase_if(all_, &One::alone);
    std::erase_if(events_, [this](const auto &entry) { return !is_parked(entry.second); });
}

bool ParkedStreams::all_alone() const {
    const std::scoped_lock lock(lock_);
    return std::ranges::all_of(all_, &One::alone);
}

bool ParkedStreams::waits_only_for(std::uint64_t stream, std::uint64_t communicator) const {
    const std::scoped_lock lock(lock_);
    return std::ranges::all_of(all_, [&](const One &one) {
        return one.communicator == communicator || (one.alone && one.stream != stream);
    });
}

} // namespace singularity::proxyd
