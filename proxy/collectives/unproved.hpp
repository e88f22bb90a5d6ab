// SPDX-License-Identifier: GPL-2.0-or-later
// Connections whose other side has not proved that it knows the job's key. They have few places, and when all
// are taken the oldest from the address that has most of them goes: idle ones keep nobody out.
#pragma once

#include "common/deadline.hpp"
#include "socket.hpp"

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace singularity::collectives {

class Unproved {
  public:
    static constexpr std::size_t kMost = 64;

    // Of a connection that a thread is going to serve: that thread calls remove() before it closes the
    // socket. To be called without a lock that the thread needs before that. Where honest processes come all
    // at once, those before it have a moment in which to prove themselves.
    void add(const Socket &socket);
    // It has proved itself, or is given up.
    void remove(const Socket &socket);
    // All of them go, and those that come later.
    void end();

  private:
    struct One {
        int fd = -1;
        std::string address;
        Deadline moment;
    };
    [[nodiscard]] std::size_t next_to_go() const;

    std::mutex lock_;
    std::condition_variable changed_;
    std::vector<One> ones_;   // the oldest first
    std::size_t leaving_ = 0; // sent away, and their threads have not heard of it yet
    bool ended_ = false;
};

} // namespace singularity::collectives
