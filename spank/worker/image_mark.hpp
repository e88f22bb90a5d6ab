// SPDX-License-Identifier: GPL-2.0-or-later
// Whether the image of a node that is restored is the one that it was saved with.
//
// A mark is of what lies at the root of the node, not of what has the image's name: of its overlay, without
// the places at which something is mounted over it. It is what the image looks like to its user: names,
// kinds, sizes, times of change and targets of links. No file is read. It is the same for a copy that keeps
// times (rsync -a, tar) on another host. Whole levels of directories are looked at, as many as the time and
// the number of names allow.
//
// Looking takes a process of its own, which hangs where a file system does.
#pragma once

#include "agent_link.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "node/record.hpp"

#include <string>

namespace singularity::worker {

// Of a node of a checkpoint: the mark of its image.
inline constexpr const char *kImage = "image";

// Of a node that runs. Empty: not even its first level could be looked at; why: for its user.
struct Marked {
    std::string mark;
    std::string why;
};
// An error only if the agent is gone.
[[nodiscard]] Expected<Marked> image_mark(const node::Record &record, AgentLink &agent,
                                          const Deadline &deadline);

// Makes the image of a node that is to be restored, as node::show_image does, and compares it. The calling
// process is in its mount namespace then. before: the mark at the checkpoint; empty: there is nothing to
// compare.
[[nodiscard]] Expected<void> enter_image(const node::Room &room, const node::Spec &spec,
                                         const std::string &before, AgentLink &agent,
                                         const Deadline &deadline);

} // namespace singularity::worker
