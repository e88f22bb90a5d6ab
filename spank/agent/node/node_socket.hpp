// SPDX-License-Identifier: GPL-2.0-or-later
// Sockets that a node's processes find in its directory, in which only root makes files.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <filesystem>

#include <sys/types.h>

namespace singularity::agent {

struct SocketOwner {
    uid_t uid = 0;
    gid_t gid = 0;
};
// Its owner and root may connect. What had the name goes.
[[nodiscard]] Expected<UniqueFd> listen_in_node(const std::filesystem::path &folder,
                                                const std::filesystem::path &name, int backlog,
                                                const SocketOwner &owner);

// A socket is found by another name, too, in the same directory or another node's. What had the name goes.
[[nodiscard]] Expected<void> share_in_node(const std::filesystem::path &from,
                                           const std::filesystem::path &to);

} // namespace singularity::agent
