// SPDX-License-Identifier: GPL-2.0-or-later
// The children of a thread, as the kernel lists them: those that criu makes on its behalf are found there
// even if criu can no longer say which they are.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"

#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace singularity::host {

// of: /proc/thread-self, or another thread's directory.
[[nodiscard]] Expected<std::set<pid_t>> children_of(const std::filesystem::path &of);
// Whether a child has ended and is not reaped yet.
[[nodiscard]] bool is_to_be_reaped(pid_t child);

// For one thread, which makes no other child meanwhile.
class Children {
  public:
    [[nodiscard]] static Expected<Children> of_this_thread();

    // Those that there were not when this object was made.
    [[nodiscard]] Expected<std::vector<pid_t>> new_ones() const;
    // Kills and reaps the children that there were not when this object was made.
    [[nodiscard]] Expected<void> end_new_ones(const Deadline &deadline) const;

  private:
    explicit Children(std::set<pid_t> before) : before_(std::move(before)) {}

    std::set<pid_t> before_;
};

} // namespace singularity::host
