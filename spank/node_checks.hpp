// SPDX-License-Identifier: GPL-2.0-or-later
// What a node must have before it can hold elastic jobs, as a table of checks. singularityd runs them.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"

#include <span>
#include <string>
#include <string_view>

namespace singularity::spank {

struct NodeCheck {
    std::string_view name;
    // What was found, in a few words; an error names what is missing and the fix. Ends within seconds
    // whatever it meets.
    Expected<std::string> (*run)();
};

[[nodiscard]] std::span<const NodeCheck> node_checks();

// The parts that the doctor needs, too, or that can be tested on text.

// Its release, of criu as it is found in PATH.
[[nodiscard]] Expected<std::string> installed_criu(const Deadline &deadline);

// output: what `criu --version` prints. Refuses releases before 4.2, which fail on TCP sockets from
// Linux 6.16 on.
[[nodiscard]] Expected<std::string> judge_criu_version(std::string_view output);

// The controllers that Slurm needs to contain a job's processes and devices must be mounted, as cgroup v1
// hierarchies or as the unified one, of which they are parts.
struct CgroupMounts {
    bool unified = false;
    bool freezer = false; // as v1
    bool devices = false;
    [[nodiscard]] bool v1() const { return freezer && devices; }
};
[[nodiscard]] CgroupMounts cgroup_mounts(std::string_view mountinfo); // a text of /proc/PID/mountinfo
[[nodiscard]] Expected<std::string> judge_cgroup_mounts(const CgroupMounts &mounts);

} // namespace singularity::spank
