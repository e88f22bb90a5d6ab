// SPDX-License-Identifier: GPL-2.0-or-later
#include "session.hpp"

#include <chrono>

namespace singularity::client {

namespace {
// The watcher's notifications are what ends the wait; this is for a daemon that dies without a word.
constexpr std::chrono::milliseconds kLook{100};
} // namespace

int Session::attribute(int number) const {
    if (number <= 0 || !device_.knows_attribute(static_cast<std::size_t>(number)))
        return -1;
    return device_.attributes[static_cast<std::size_t>(number)];
}

void Session::count_packet() {
    {
        const std::scoped_lock lock(packets_lock_);
        packets_.fetch_add(1, std::memory_order_release);
    }
    packets_changed_.notify_all();
}

void Session::await_packets(std::uint64_t packets) {
    if (packets_.load(std::memory_order_acquire) >= packets)
        return;
    std::unique_lock lock(packets_lock_);
    while (packets_.load(std::memory_order_acquire) < packets && !dead())
        packets_changed_.wait_for(lock, kLook);
}

} // namespace singularity::client
