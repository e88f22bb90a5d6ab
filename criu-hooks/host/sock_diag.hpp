// SPDX-License-Identifier: GPL-2.0-or-later
// Questions about the sockets of a network namespace to the kernel (sock_diag(7)).
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include <linux/netlink.h>
#include <sys/types.h>

namespace singularity::host {

struct SocketQuestion {
    std::span<const std::byte> body; // unix_diag_req or inet_diag_req_v2
    std::string_view what;           // "the node's Unix sockets", for errors
    std::string_view module;         // of the kernel, that answers
};
// Calls `see` with the kernel's message about each socket in the network namespace of process `pid`.
[[nodiscard]] Expected<void> for_each_socket(pid_t pid, const SocketQuestion &question,
                                             const std::function<void(nlmsghdr *)> &see);

} // namespace singularity::host
