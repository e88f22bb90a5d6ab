// SPDX-License-Identifier: GPL-2.0-or-later
#include "unproved.hpp"

#include "common/crowd.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include <sys/socket.h>

namespace singularity::collectives {

namespace {

// An honest process needs less, and a flood of connections gets no more than kMost of them at once.
constexpr std::chrono::milliseconds kMoment{100};

void hang_up(int fd) { static_cast<void>(::shutdown(fd, SHUT_RDWR)); } // its thread sees it

} // namespace

std::size_t Unproved::next_to_go() const {
    std::vector<std::string> addresses;
    for (const auto &one : ones_)
        addresses.push_back(one.address);
    return oldest_of_most(std::span<const std::string>(addresses));
}

void Unproved::add(const Socket &socket) {
    auto address = socket.peer_address();
    std::unique_lock lock(lock_);
    const auto has_room = [this] { return ones_.size() < kMost; };
    if (!has_room())
        changed_.wait_until(lock, ones_[next_to_go()].moment.when(), has_room);
    if (!has_room()) {
        const auto gone = ones_.begin() + static_cast<std::ptrdiff_t>(next_to_go());
        hang_up(gone->fd);
        ones_.erase(gone);
        ++leaving_;
    }
    // Their threads have nothing else to wait for, and there must not be any number of them.
    changed_.wait(lock, [this] { return leaving_ < kMost; });
    ones_.push_back({.fd = socket.fd(), .address = std::move(address), .moment = Deadline::after(kMoment)});
    if (ended_)
        hang_up(socket.fd());
}

void Unproved::remove(const Socket &socket) {
    const std::scoped_lock lock(lock_);
    const auto found = std::ranges::find(ones_, socket.fd(), &One::fd);
    if (found != ones_.end())
        ones_.erase(found);
    else
        --leaving_;
    changed_.notify_all();
}

void Unproved::end() {
    const std::scoped_lock lock(lock_);
    ended_ = true;
    for (const auto &one : ones_)
        hang_up(one.fd);
}

} // namespace singularity::collectives
