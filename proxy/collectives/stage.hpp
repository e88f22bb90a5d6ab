// SPDX-License-Identifier: GPL-2.0-or-later
// Where payloads lie between the programs' memories: in the members' areas, or in memory of the device on
// which all members are, laid out alike. Heads and counters are in the areas in both cases.
#pragma once

#include "group.hpp"
#include "proxy/collectives/reduce.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace singularity::collectives {

struct Desk;

// One member's view. Places are offsets in an area.
class Stage {
  public:
    [[nodiscard]] static std::unique_ptr<Stage> make(const Desk &desk, Group::Part part);
    Stage() = default;
    Stage(const Stage &) = delete;
    Stage &operator=(const Stage &) = delete;
    Stage(Stage &&) = delete;
    Stage &operator=(Stage &&) = delete;
    virtual ~Stage() = default;

    // true: what is computed goes in order with copies, and marks tell of its end. false: it is done at once.
    [[nodiscard]] virtual bool on_device() const = 0;
    // From the program to the member's own place.
    [[nodiscard]] virtual Expected<void> fetch(std::uint64_t from, std::size_t at, std::size_t size) = 0;
    // From any member's place to the program.
    [[nodiscard]] virtual Expected<void> deliver(std::uint32_t member, std::size_t at, std::size_t size,
                                                 std::uint64_t to) = 0;
    [[nodiscard]] virtual Expected<void> scale(std::uint32_t type, std::size_t at, const Scalar &scalar,
                                               std::uint64_t count) = 0;
    // What all members have at `at`, to the member's own `result`.
    [[nodiscard]] virtual Expected<void> reduce(std::uint32_t type, std::uint32_t reduction, std::size_t at,
                                                std::size_t result, std::uint64_t count) = 0;
};

} // namespace singularity::collectives
