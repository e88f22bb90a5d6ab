// SPDX-License-Identifier: GPL-2.0-or-later
// Which of a node's tasks each of its processes belongs to. The cgroups that Slurm has made for the tasks
// tell, also of processes whose parents have ended. A table of that is kept with the host image: at a restore
// the tasks have other cgroups, and each process begins in that of its own.
#pragma once

#include "agent/worker/worker_messages.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "criu-hooks/host/node.hpp"

#include <string>
#include <vector>

namespace singularity::worker {

// Of a node that stands still; images: the directory of its host image.
[[nodiscard]] Expected<void> save_task_places(const agent::WorkSave &job, const host::DumpReport &dumped,
                                              int images);

struct TaskPlaces {
    std::vector<UniqueFd> held;
    std::vector<host::Placed> placed;
};
// For processes that are made by the calling process. Those of a checkpoint without a table stay where that
// is.
[[nodiscard]] Expected<TaskPlaces> load_task_places(const std::vector<agent::TaskCgroups> &tasks, int images);

} // namespace singularity::worker
