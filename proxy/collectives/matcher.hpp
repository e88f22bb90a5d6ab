// SPDX-License-Identifier: GPL-2.0-or-later
// Who has joined under which key, until all have.
#pragma once

#include "common/error.hpp"
#include "group.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace singularity::collectives {

class Matcher {
  public:
    // Keys that wait at a time; more is somebody who fills memory.
    static constexpr std::size_t kMostForming = std::size_t{1} << 16;

    // first: what instances are counted from.
    explicit Matcher(Instance first) : next_(first) {}

    struct Seat {
        std::uint64_t process = 0;
        std::uint64_t ticket = 0;
    };
    struct Whole {
        Key key{};
        Instance instance = 0;
        std::vector<Seat> seats; // by rank
    };
    // A value when this was the last one. An error: it cannot have this seat.
    [[nodiscard]] Expected<std::optional<Whole>> join(const Key &key, std::uint32_t rank, std::uint32_t size,
                                                      const Seat &seat);
    void forget(std::uint64_t process, std::uint64_t ticket);
    void forget_process(std::uint64_t process);

  private:
    struct Forming {
        std::vector<std::optional<Seat>> seats;
        std::uint32_t taken = 0;
    };
    template <class Condition>
    void forget_if(Condition condition);

    Instance next_;
    std::map<Key, Forming> forming_;
};

} // namespace singularity::collectives
