// SPDX-License-Identifier: GPL-2.0-or-later
// One virtual node as criu-hooks/host wants it described, and its own files that go with its host image.
#pragma once

#include "agent_link.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "criu-hooks/host/node.hpp"
#include "node/record.hpp"

#include <string>
#include <vector>

namespace singularity::worker {

// Of a job's owner: what every process of the node must be.
[[nodiscard]] host::Context context_of(const node::Spec &spec, AgentLink &agent, const char *phase);

// Descriptors of the pipes that lead out of the node and that some task still has; they keep no pipe open.
struct Outside {
    std::vector<UniqueFd> held;
    std::vector<host::OutsideDescriptor> descriptors;
};
[[nodiscard]] Expected<Outside> outside_of(const node::Record &record);

// Duplicates of the init's ends of connections from outside of the node: the agent's, which it closes before
// a checkpoint.
[[nodiscard]] Expected<std::vector<UniqueFd>> connections_of_init(const node::Record &record);

// Addresses of the other nodes of its job.
[[nodiscard]] std::vector<std::string> neighbours_of(const node::Spec &spec);

// Only a node of a job: its connections to the outside are saved, and reset where it is restored.
[[nodiscard]] bool has_way_out(const node::Spec &spec);

// At a dump, where they are in the node; at a restore, what is mounted there.
[[nodiscard]] std::vector<host::OutsideMount> mounts_in(const node::Record &record, const node::Room &room);
[[nodiscard]] std::vector<host::OutsideMount> mounts_from(const node::Record &record, const node::Room &room);

// The agent closes its connection to the init, whose other end was made outside of the node and could not be
// saved: until the init has found that out and has closed it.
[[nodiscard]] Expected<void> await_hang_up(const node::Record &record, const Deadline &deadline);

// The output of detached tasks so far, which belongs to the moment of the image.
[[nodiscard]] Expected<void> copy_logs(const std::filesystem::path &from, const std::filesystem::path &to);

} // namespace singularity::worker
