// SPDX-License-Identifier: GPL-2.0-or-later
// What is in a node's local directories, as archives beside its host image. tar(1) makes and unpacks them,
// with the ids of the node's user: it reads, makes and replaces nothing that the user could not.
#pragma once

#include "agent_link.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "criu-hooks/host/transfer.hpp"
#include "node/record.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace singularity::worker {

using Notice = std::function<void(std::string)>;

// Into the directory of images, while the node stands still: what it has mounted there, if that is its job's.
// Code EOPNOTSUPP: it is not, or there is more than `quota` bytes (0: no limit). notice: hears of what could
// not be read. written: files that the node has open for writing, as it sees them. The origin of what has
// been saved.
[[nodiscard]] Expected<std::string> save_local(const node::Record &record, std::uint64_t quota,
                                               const std::vector<std::string> &written, int images,
                                               AgentLink &agent, const Deadline &deadline,
                                               const Notice &notice);

// Where chunks of the store should begin, so that a file that has not changed is found there: the larger
// files in the archives of a directory of images. Archives are the user's: what is no archive has no cuts.
[[nodiscard]] host::Cuts cuts_of_local(int images);

// Makes those of a node that is restored, and says in `spec` where they lie.
[[nodiscard]] Expected<void> take_local(node::Spec &spec);

// Before the node is restored: from the directory of images, where nothing of them stays. Several nodes of a
// job may have the same directories: the first one's archives take the place of what is there, of those of
// the others what is missing, and what only they had open for writing. Others wait for it. So no file is
// replaced that a node has open, which would then write to one that has no name, and each goes on in its own
// files where it was.
// notice: hears of files that have come to belong to the node's user, since no user can give files away.
struct Patience {
    std::chrono::seconds for_others; // which unpack theirs one after the other
    std::chrono::seconds for_own;
};
[[nodiscard]] Expected<void> load_local(const node::Spec &spec, int images, AgentLink &agent,
                                        const Patience &patience, const Notice &notice);

} // namespace singularity::worker
