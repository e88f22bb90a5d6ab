// SPDX-License-Identifier: GPL-2.0-or-later
// One daemon, that is one device, as this process sees it.
#pragma once

#include "proxy/channel/client_end.hpp"
#include "ranges.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace singularity::client {

struct Context;

// Lives as long as the process: whoever has a pointer may use it at any time.
class Session {
  public:
    Session(int ordinal, std::string socket, std::unique_ptr<channel::ClientEnd> end,
            const channel::DeviceIdentity &device, const channel::WindowArea &area)
        : ordinal_(ordinal), socket_(std::move(socket)), end_(std::move(end)), device_(device), area_(area) {}
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;
    Session(Session &&) = delete;
    Session &operator=(Session &&) = delete;
    ~Session() = default;

    [[nodiscard]] int ordinal() const { return ordinal_; }
    [[nodiscard]] const std::string &socket() const { return socket_; }
    [[nodiscard]] channel::ClientEnd &end() { return *end_; }
    [[nodiscard]] bool dead() const { return end_->dead(); }
    [[nodiscard]] const channel::DeviceIdentity &device() const { return device_; }
    [[nodiscard]] const channel::WindowArea &area() const { return area_; }
    // -1 where the driver does not know the attribute.
    [[nodiscard]] int attribute(int number) const;

    // The part of the window whose addresses are this device's. Taken and given back with addresses_lock
    // held.
    std::mutex addresses_lock;
    RangeAllocator addresses{Range{}};
    Range slice;

    // Packets received from the daemon and dealt with; the watcher counts.
    void count_packet();
    // Waits until the watcher has dealt with so many, or the daemon is dead.
    void await_packets(std::uint64_t packets);

    [[nodiscard]] std::uint64_t packets() const { return packets_.load(std::memory_order_acquire); }

    // Whether there is a daemon behind the socket; not while the session waits for another one. Changed and
    // relied on with link_lock held.
    [[nodiscard]] bool linked() const { return linked_.load(std::memory_order_acquire); }
    void set_linked(bool linked) { linked_.store(linked, std::memory_order_release); }
    std::mutex link_lock;
    // A daemon was found, and what it needs is being told: its death is not yet the session's end.
    [[nodiscard]] bool attaching() const { return attaching_.load(std::memory_order_acquire); }
    void set_attaching(bool attaching) { attaching_.store(attaching, std::memory_order_release); }

    // The primary context, made when it is first asked for; see context.hpp.
    Context *primary = nullptr;
    std::mutex primary_lock; // its retain count and life

  private:
    int ordinal_;
    std::string socket_;
    std::unique_ptr<channel::ClientEnd> end_;
    channel::DeviceIdentity device_;
    channel::WindowArea area_;
    std::atomic<std::uint64_t> packets_ = 1; // the Welcome was one
    std::atomic<bool> linked_ = true;
    std::atomic<bool> attaching_ = false;
    std::mutex packets_lock_;
    std::condition_variable packets_changed_;
};

} // namespace singularity::client
