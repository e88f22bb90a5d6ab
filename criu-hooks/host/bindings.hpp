// SPDX-License-Identifier: GPL-2.0-or-later
// Which processors the threads of a node are bound to (sched_setaffinity(2)), of those that its init may use.
// CRIU does not save that. A restore binds them to the processors that have the same places among those of
// the restored node. (Whoever has bound the tasks of a node then says where they are to run: init knows what
// is the task's binding, and what its program's.)
#pragma once

#include "common/cpu_mask.hpp"
#include "criu-hooks/host/node.hpp"

#include <vector>

#include <sys/types.h>

namespace singularity::host {

inline constexpr const char *kBindingsTable = "cpu-bindings";

struct ThreadBinding {
    pid_t thread = 0; // its id in the node
    CpuMask mask;
};
struct Bindings {
    CpuMask base; // of init
    std::vector<ThreadBinding> threads;
};

// While nothing of the node runs: writes the table into the image.
[[nodiscard]] Expected<void> keep_bindings(const DumpRequest &request);

// Empty where an image has none.
[[nodiscard]] Expected<Bindings> read_bindings(int images);

// In the restored node, which has this init, before it runs.
[[nodiscard]] Expected<void> bind_again(int images, pid_t init);

} // namespace singularity::host
