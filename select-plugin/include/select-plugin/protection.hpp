// SPDX-License-Identifier: GPL-2.0-or-later
// Which jobs Slurm's own preemption leaves alone while singularity-planner makes room among them: what the
// planner writes after each look, and the select plugin in slurmctld reads.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace singularity {

// On the host of slurmctld, for everybody to read.
constexpr const char *kProtectionFile = "/run/singularity-planner/protection";

// Whom a job that starts may not preempt.
enum class Spared : std::uint8_t {
    kNobody,  // the planner does nothing for it: as in stock Slurm
    kCovered, // it waits until the planner can make room
    kAll,     // there is room for it, it is being made, or the planner has not seen it yet
};

struct Protection {
    std::time_t until = 0;    // nothing is protected from then on: the planner has not looked again
    std::uint32_t newest = 0; // the greatest id of a job that was seen
    // Ids, ascending.
    std::vector<std::uint32_t> served;  // of jobs that wait: for whom there is room, or it is being made
    std::vector<std::uint32_t> waiting; // the others that are planned for
    std::vector<std::uint32_t> covered; // that run: the planner moves them itself, or they are owed something

    [[nodiscard]] Spared spared_for(std::uint32_t job, std::time_t now) const;
    [[nodiscard]] bool covers(std::uint32_t job) const;

    [[nodiscard]] std::string write() const;
    // What write() has written. Errors name file_name, the line and what was expected.
    [[nodiscard]] static Expected<Protection> parse(std::string_view text, std::string_view file_name);

    bool operator==(const Protection &) const = default;
};

} // namespace singularity
