// SPDX-License-Identifier: GPL-2.0-or-later
// Unix sockets of a node that are connected with a process of the host: a daemon that looks users up (sssd,
// nscd) or takes lines for its log (/dev/log), an ssh-agent. An image holds the node's end alone. A node that
// runs on keeps its connections; in one that is restored they have ended, as if the daemon had been started
// again: programs that keep one for long connect again by themselves.
//
// Datagrams have no end that a program could see. Their sockets are disconnected at the dump: the next
// attempt to send fails with ENOTCONN, upon which syslog(3) and its like connect again.
#pragma once

#include "common/unique_fd.hpp"
#include "criu-hooks/host/node.hpp"
#include "unix_sockets.hpp"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace singularity::host {

inline constexpr const char *kOutside =
    "its other end is outside of the node: the process there must close it before a checkpoint";

// Whether the other end of a stream of the node is a daemon's, and not one of a connection within the node
// that is on its way to the process that will hold it. It may still be one whose listener has been closed.
[[nodiscard]] bool is_of_host(const UnixSocket &other_end, const UnixSockets &sockets);

// Why the other end of this socket, which a process of the host has, must not be left behind. Empty: it may.
[[nodiscard]] std::string why_not_left(int socket);

// While nothing of the node runs, and before criu looks at its sockets: CRIU's names of those whose other end
// is not to be saved.
[[nodiscard]] Expected<std::vector<std::string>> leave_host_connections(const DumpRequest &request);

// CRIU's names ("socket:[4711]") of the streams in an image whose other end is not in it.
[[nodiscard]] Expected<std::set<std::string>> half_connections(int images);

// For a restore: by CRIU's names, streams of the node's network whose other end has been closed, for those
// whose other end is not in the image.
[[nodiscard]] Expected<std::vector<std::pair<std::string, UniqueFd>>>
ended_connections(const RestoreRequest &request);

} // namespace singularity::host
