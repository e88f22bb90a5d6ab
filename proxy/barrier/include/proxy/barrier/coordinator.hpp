// SPDX-License-Identifier: GPL-2.0-or-later
// Who compares what all processes of a job have issued. Without I/O and clock: the caller sends requests to
// processes, collects one report of each, and decides when the time is over.
#pragma once

#include "common/error.hpp"
#include "proxy/barrier/lines.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace singularity::barrier {

// What all processes have issued. Of two totals with the same lines the difference is what was done
// meanwhile.
struct Total {
    std::uint64_t operations = 0;
    std::uint64_t lines = 0; // a digest of which were counted
    auto operator<=>(const Total &) const = default;
};
[[nodiscard]] Total total_of(std::span<const Report> reports);

class Coordinator {
  public:
    // barrier: a random number that no earlier one had.
    explicit Coordinator(std::uint64_t barrier) : barrier_(barrier) {}

    struct Decision {
        bool complete = false;
        // Of the next round, to each of these processes; to others `otherwise`.
        std::map<Key, Request> requests;
        Request otherwise;
    };

    // To everybody, whoever it is.
    [[nodiscard]] Request first() const;
    // The reports of one round, of all processes; those of a process that has ended are left out. An error:
    // they contradict each other.
    [[nodiscard]] Expected<Decision> decide(std::span<const Report> reports);
    [[nodiscard]] Request release() const;

    // How long processes have for their answers in the next round, where `longest` is what they have at most.
    // In the first one a rank may wait, within its group, for another that the same round keeps at its gate.
    [[nodiscard]] std::chrono::milliseconds patience(std::chrono::milliseconds longest) const;
    // Who was behind, at the last decision; for the message when the time is over.
    [[nodiscard]] std::string behind() const;

    auto operator<=>(const Coordinator &) const = default;
    [[nodiscard]] std::uint64_t round() const { return round_; }

  private:
    std::uint64_t barrier_;
    std::uint64_t round_ = 1;
    std::map<Key, std::vector<Count>> last_; // of each process
    std::vector<std::string> behind_;
};

} // namespace singularity::barrier
