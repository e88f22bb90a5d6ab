// SPDX-License-Identifier: GPL-2.0-or-later
// Which multicast groups sockets have joined, and joining them again. The kernel has no list of a socket's
// groups. It has one of an interface's (/proc/PID/net/igmp), and tells of each of these whether a socket has
// joined it.
#pragma once

#include "common/error.hpp"

#include <string>
#include <vector>

#include <sys/types.h>

namespace singularity::host {

struct JoinedGroup {
    int level = 0;         // SOL_IP, SOL_IPV6: who has joined an IPv4 group may be an IPv6 socket
    std::string interface; // "lo": its number may be another one in a restore
    std::string address;   // sockaddr_in or sockaddr_in6 of the group
    bool includes = false; // from these sources alone; else from all others
    std::vector<std::string> sources;
    auto operator<=>(const JoinedGroup &) const = default;
};

// A group that something of a network has joined on one of its interfaces.
struct GroupOfInterface {
    unsigned number = 0; // of the interface
    std::string interface;
    int level = 0;       // SOL_IP, SOL_IPV6
    std::string address; // sockaddr_in, sockaddr_in6
};

[[nodiscard]] Expected<std::vector<GroupOfInterface>> groups_of_interfaces(pid_t pid);

// Those of them that the socket has joined.
[[nodiscard]] Expected<std::vector<JoinedGroup>> joined_groups(int socket,
                                                               const std::vector<GroupOfInterface> &all);

// The calling thread is in the socket's network.
[[nodiscard]] Expected<void> join_again(int socket, const JoinedGroup &group, const std::string &what);

} // namespace singularity::host
