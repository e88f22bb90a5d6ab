// SPDX-License-Identifier: GPL-2.0-or-later
// Where every group stops before it is issued, and is counted: what a barrier over all ranks is made of
// (proxy/barrier). The gate itself is the process's, in the client's libcuda.so.1.
#pragma once

#include "proxy/barrier/lines.hpp"

#include <span>

namespace singularity::nccl {

// Called from any thread, also from several at once: ranks of one process begin and end beside each other.
class Gate {
  public:
    Gate() = default;
    Gate(const Gate &) = delete;
    Gate &operator=(const Gate &) = delete;
    Gate(Gate &&) = delete;
    Gate &operator=(Gate &&) = delete;
    virtual ~Gate() = default;

    virtual void join(const barrier::Member &member) = 0;
    virtual void leave(const barrier::Member &member) = 0;

    // Returns when the group may be issued; exit() when it has been, by the same thread.
    virtual void enter(std::span<const barrier::Line> group) = 0;
    virtual void exit() = 0;
};

// A group that is being issued.
class Passage {
  public:
    Passage(Gate &gate, std::span<const barrier::Line> group) : gate_(gate) { gate_.enter(group); }
    ~Passage() { gate_.exit(); }
    Passage(const Passage &) = delete;
    Passage &operator=(const Passage &) = delete;
    Passage(Passage &&) = delete;
    Passage &operator=(Passage &&) = delete;

  private:
    Gate &gate_;
};

} // namespace singularity::nccl
