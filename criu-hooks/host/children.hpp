// SPDX-License-Identifier: GPL-2.0-or-later
// The children of a thread, as the kernel lists them: those that criu makes on its behalf are found there
// even if criu can no longer say which they are.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"

#include <set>
#include <utility>

#include <sys/types.h>

namespace singularity::host {

// For one thread, which makes no other child meanwhile.
class Children {
  public:
    [[nodiscard]] static Expected<Children> of_this_thread();

    // Whether one that there was not when this object was made has ended and is not reaped; `but` is not
    // looked at.
    [[nodiscard]] Expected<bool> new_one_has_ended(pid_t but) const;
    // Kills and reaps the children that there were not when this object was made.
    [[nodiscard]] Expected<void> end_new_ones(const Deadline &deadline) const;

  private:
    explicit Children(std::set<pid_t> before) : before_(std::move(before)) {}

    std::set<pid_t> before_;
};

} // namespace singularity::host
