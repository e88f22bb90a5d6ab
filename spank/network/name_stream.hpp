// SPDX-License-Identifier: GPL-2.0-or-later
// A TCP connection of a node's program to a name server of the host: two sockets, and what is on its way
// from one to the other. Both sockets never block.
#pragma once

#include "common/deadline.hpp"
#include "common/unique_fd.hpp"

#include <array>
#include <cstdint>
#include <string>

namespace singularity::network {

class NameStream {
  public:
    // on_host: may still be connecting.
    NameStream(UniqueFd in_node, UniqueFd on_host);

    [[nodiscard]] const UniqueFd &in_node() const { return ends_[0]; }
    [[nodiscard]] const UniqueFd &on_host() const { return ends_[1]; }

    enum class Outcome : std::uint8_t {
        waits,   // for one of its sockets, as EPOLLET tells
        goes_on, // there is more to do at once: others come first
        over,
    };
    [[nodiscard]] Outcome pass();
    [[nodiscard]] const Deadline &until() const { return until_; } // it is given up if nothing passes

  private:
    struct Flow { // from an end to the other
        std::string held;
        bool read_to_end = false;
        bool ended = false; // and the other end has been told
    };
    enum class Step : std::uint8_t { none, some, broken };
    [[nodiscard]] static Step pass(Flow &flow, const UniqueFd &from, const UniqueFd &to);

    std::array<UniqueFd, 2> ends_;
    std::array<Flow, 2> flows_; // from the end of the same number
    Deadline until_;
};

} // namespace singularity::network
