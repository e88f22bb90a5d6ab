// SPDX-License-Identifier: GPL-2.0-or-later
// What programs have said of their sockets and CRIU 4.2 does not save: options (TCP_USER_TIMEOUT, IP_RECVERR,
// SO_TIMESTAMP...) and the multicast groups that they have joined. A dump notes what differs from a new
// socket of the kind; a restore says it again, when all is there and nothing runs yet.
#pragma once

#include "criu-hooks/host/node.hpp"
#include "multicast.hpp"

#include <string>
#include <vector>

#include <sys/types.h>

namespace singularity::host {

inline constexpr const char *kSocketsTable = "socket-options";

struct SocketOption {
    int level = 0;
    int name = 0;
    std::string value; // as getsockopt(2) has it
    auto operator<=>(const SocketOption &) const = default;
};

// By one of the descriptors that lead to it.
struct SocketSettings {
    pid_t inner = 0; // of a process, in the node
    int descriptor = 0;
    std::vector<SocketOption> options;
    std::vector<JoinedGroup> groups;
    auto operator<=>(const SocketSettings &) const = default;
};

// While nothing of the node runs: writes the table into the image.
[[nodiscard]] Expected<void> keep_socket_options(const DumpRequest &request);

// The table; empty where an image has none.
[[nodiscard]] Expected<std::vector<SocketSettings>> read_socket_options(int images);

// In the processes of the restored node, which has this init, before they run.
[[nodiscard]] Expected<void> set_socket_options(const RestoreRequest &request, pid_t init);

} // namespace singularity::host
