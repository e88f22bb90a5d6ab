// SPDX-License-Identifier: GPL-2.0-or-later
// Processes that are not ours by number alone: held by pidfd, told apart by start time and namespace.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include <sys/types.h>

namespace singularity::node {

// What no later process of the same number has.
struct Identity {
    std::int32_t pid = 0;
    std::uint64_t start_time = 0;    // clock ticks since boot; proc(5), field 22 of stat
    std::uint64_t pid_namespace = 0; // inodes of /proc/PID/ns
    std::uint64_t network_namespace = 0;
    static void fields(auto &self, auto &visit) {
        visit(self.pid, self.start_time, self.pid_namespace, self.network_namespace);
    }
};

[[nodiscard]] Expected<Identity> identity_of(pid_t pid);

// A descriptor of exactly this process. The error has the code ESRCH if it is gone.
[[nodiscard]] Expected<UniqueFd> hold(const Identity &identity);

// ESRCH, the process has ended, is no error.
[[nodiscard]] Expected<void> kill_process(const UniqueFd &pidfd, const std::string &name);

// Ends all processes that have the directory `source` of this machine at `mount_point`, in mount namespaces
// other than ours: those of a node whose init nobody has written down, and the criu that still is at them.
// How many.
[[nodiscard]] Expected<std::size_t> end_strays(const std::filesystem::path &source,
                                               const std::filesystem::path &mount_point);

// Only becomes true when every process of its PID namespace is dead, if it is the namespace's init
// (pid_namespaces(7)).
[[nodiscard]] bool has_ended(const UniqueFd &pidfd);

} // namespace singularity::node
