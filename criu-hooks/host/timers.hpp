// SPDX-License-Identifier: GPL-2.0-or-later
// Timers of timer_create(2) that signal one thread (SIGEV_THREAD_ID), as CRIU 4.2 saves them. Two things are
// wrong in its images, and put right before it reads them:
//
// * A timer that signals the first thread has no id of it: CRIU would write what it has not set yet, so
//   ../as_user/functions.cpp takes care that it writes none.
// * "The calling thread's processor time" (CLOCK_THREAD_CPUTIME_ID) is the time of another thread when
//   CRIU asks for it, that of the process's first one. Go's profiler has such a timer for each of its
//   threads.
#pragma once

#include "common/error.hpp"
#include "process_tree.hpp"
#include "wire.hpp"

#include <optional>
#include <string>

namespace singularity::host {

// A message of CRIU's core image (images/core.proto) of a process's first thread; nothing if it stays as it
// is.
[[nodiscard]] Expected<std::optional<std::string>> core_with_timers(Bytes core, const ProcessEntry &process);

// In all core images of the directory, before CRIU reads them.
[[nodiscard]] Expected<void> repair_timers_in_images(int images);

} // namespace singularity::host
