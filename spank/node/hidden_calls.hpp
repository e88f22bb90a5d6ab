// SPDX-License-Identifier: GPL-2.0-or-later
// Kernel interfaces that a checkpoint cannot hold and that programs do without where the kernel lacks them:
// io_uring above all, which libuv and what stands on it (PyTorch's rendezvous, uvloop) take when it is there.
// A node answers as a kernel without them does.
#pragma once

#include "common/error.hpp"

namespace singularity::node {

// In the calling process and whatever it starts, for good. The caller has no_new_privs.
[[nodiscard]] Expected<void> hide_unsavable_calls();

} // namespace singularity::node
