// SPDX-License-Identifier: GPL-2.0-or-later
// Which descriptors and mappings of a process a host image cannot hold.
#pragma once

#include "criu-hooks/host/node.hpp"
#include "proc.hpp"
#include "unix_sockets.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace singularity::host {

// The file system of mq_open(3): MQUEUE_MAGIC of the kernel's ipc/mqueue.c.
inline constexpr long kMessageQueues = 0x19800202;

// The error of every check.
[[nodiscard]] inline std::unexpected<Error> cannot_save(const std::string &what, std::string why) {
    return failure("save", what, std::move(why), EOPNOTSUPP);
}

// What the checks of all processes of a node share.
struct NodeFacts {
    std::string network;                          // "net:[4026532201]"
    std::map<std::uint64_t, std::string> mounts;  // of init: mount id -> mount point
    std::map<std::uint64_t, std::string> devices; // device number as the kernel has it -> one mount point
    std::set<dev_t> own_memory;                   // tmpfs of this node alone, whose content is in the image
    UnixSockets unix_sockets;                     // of the node's network
    std::set<std::string> outside;                // Resource::inherit of what leads out with leave
    std::set<std::string> neighbours;             // addresses
    std::uint64_t descriptors = 0;                // of a process that CRIU makes: how many it can have
    bool others_are_reset = false;                // as of DumpRequest
};

[[nodiscard]] Expected<NodeFacts> facts_of(const DumpRequest &request);

[[nodiscard]] Expected<void> check_descriptors(const NodeFacts &facts, const DumpRequest &request,
                                               const Process &process);
[[nodiscard]] Expected<void> check_mappings(const NodeFacts &facts, const DumpRequest &request,
                                            const Process &process);

// Whether the kernel opens files of a file system by their handles; by any descriptor of it.
[[nodiscard]] bool opens_by_handle(int fd);

// One socket, by a duplicate of its descriptor.
[[nodiscard]] Expected<void> check_socket(const NodeFacts &facts, int socket, const std::string &what);

} // namespace singularity::host
