// SPDX-License-Identifier: GPL-2.0-or-later
// Unix sockets that keep the limits of packets: addresses, listening, and connecting with a deadline.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <filesystem>

#include <sys/types.h>
#include <sys/un.h>

namespace singularity {

// ENAMETOOLONG where the path is empty or has no room in an address (108 bytes with its end).
[[nodiscard]] Expected<sockaddr_un> unix_address(const std::filesystem::path &path);

// A new SOCK_SEQPACKET socket, non-blocking and closed on exec, connected to who listens at the path. Waits
// only where the listener has too many to accept already. Codes: connect(2)'s; ETIMEDOUT.
[[nodiscard]] Expected<UniqueFd> connect_unix(const std::filesystem::path &path, const Deadline &deadline);

// A new SOCK_SEQPACKET socket, non-blocking and closed on exec, that listens at the path, which gets this
// mode; what was there is removed.
[[nodiscard]] Expected<UniqueFd> listen_unix(const std::filesystem::path &path, mode_t mode, int backlog);

} // namespace singularity
