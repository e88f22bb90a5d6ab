// SPDX-License-Identifier: GPL-2.0-or-later
// What the kernel says of Unix sockets (sock_diag(7)).
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <map>
#include <string>

#include <sys/types.h>

namespace singularity::host {

struct UnixSocket {
    int type = 0; // SOCK_STREAM...
    bool listens = false;
    std::uint64_t peer = 0; // the inode of its other end; 0: it has none, or one that nobody has accepted
    std::string name;       // as bound; of a connection that was accepted, as who listens is bound
};

// By inode: those of the network namespace of a node's init, without sockets of other nodes in it that listen
// or take datagrams: these are to the node what a daemon of the host is. The end that a connection has where
// it was accepted is in the network of the one who connected.
using UnixSockets = std::map<std::uint64_t, UnixSocket>;
[[nodiscard]] Expected<UnixSockets> unix_sockets(pid_t pid);

} // namespace singularity::host
