// SPDX-License-Identifier: GPL-2.0-or-later
// Where every group stops before it is issued, and is counted: what a barrier over all ranks is made of.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace singularity::nccl {

enum class Way : std::uint8_t { collective, send, receive };

// So many operations of one kind, on one communicator, with one peer.
struct Issue {
    std::array<std::uint64_t, 2> communicator; // its key
    Way way = Way::collective;
    std::uint32_t peer = 0; // of sends and receives
    std::uint64_t count = 0;
};

class Gate {
  public:
    Gate() = default;
    Gate(const Gate &) = delete;
    Gate &operator=(const Gate &) = delete;
    Gate(Gate &&) = delete;
    Gate &operator=(Gate &&) = delete;
    virtual ~Gate() = default;

    // Returns when they may be issued; the caller does so at once.
    virtual void pass(std::span<const Issue> issues) = 0;
};

// Until somebody wants to stop ranks.
class OpenGate : public Gate {
  public:
    void pass(std::span<const Issue> /*issues*/) override {}
};

} // namespace singularity::nccl
