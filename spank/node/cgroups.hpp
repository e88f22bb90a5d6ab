// SPDX-License-Identifier: GPL-2.0-or-later
// A node lives in the cgroups of the process that has asked for it: what limits, accounts and kills that
// (Slurm's job, a login session) limits, accounts and kills the node. None is made.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace singularity::node {

// Moves the calling process into the cgroups of another one, in every hierarchy in which it is not there
// already. theirs: the content of its /proc/PID/cgroup
[[nodiscard]] Expected<void> join_cgroups(const std::string &theirs);

// Moves another process there, which the caller knows not to have ended, with all of its threads. What it
// starts from then on begins there; what it has started already stays where it is.
[[nodiscard]] Expected<void> move_to_cgroups(pid_t pid, const std::string &theirs);

// The files that a process has to write "0" to in order to move from where the calling process is to
// `theirs`: open, so that the right to do so is the caller's.
[[nodiscard]] Expected<std::vector<UniqueFd>> open_cgroups(const std::string &theirs);

// Of /proc/PID/cgroup (theirs) what nobody but root has decided: each path as far as its directories belong
// to root, and the one after that, which root has made there. A user's own cgroups, such as those below
// user@UID.service, may have any names. Lines of hierarchies that cannot be seen from here are left out.
[[nodiscard]] Expected<std::string> made_by_root(std::string_view theirs);

// The same, of what is mounted as mountinfo (/proc/self/mountinfo) says.
[[nodiscard]] std::string made_by_root(std::string_view theirs, std::string_view mountinfo);

// The files cgroup.procs that join_cgroups writes to.
//   theirs, ours: /proc/PID/cgroup; mountinfo: /proc/self/mountinfo
[[nodiscard]] Expected<std::vector<std::string>> cgroup_files(std::string_view theirs, std::string_view ours,
                                                              std::string_view mountinfo);

} // namespace singularity::node
