// SPDX-License-Identifier: GPL-2.0-or-later
#include "multicast.hpp"

#include "common/proc.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <sstream>

#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace singularity::host {
namespace {

template <class Address>
std::string bytes_of(const Address &address) {
    return {reinterpret_cast<const char *>(&address), sizeof(address)};
}

bool as_storage(const std::string &address, sockaddr_storage &out) {
    if (address.size() > sizeof(out))
        return false;
    std::memcpy(&out, address.data(), address.size());
    return true;
}

// A message of MCAST_MSFILTER, which ends with as many addresses as it says.
std::vector<std::byte> filter_for(std::size_t sources) {
    return std::vector<std::byte>(GROUP_FILTER_SIZE(sources));
}

// "1	lo        :     1      V3" and, below it, its groups: "				FB0000E0     1
// 0:00000000		0", the address as the processor has the number.
void read_igmp(const std::string &text, std::vector<GroupOfInterface> &out) {
    std::istringstream lines(text);
    GroupOfInterface now;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        if (line.starts_with('\t')) {
            std::string digits;
            sockaddr_in address{};
            address.sin_family = AF_INET;
            if (words >> digits &&
                std::from_chars(digits.data(), digits.data() + digits.size(), address.sin_addr.s_addr, 16)
                        .ec == std::errc()) {
                now.address = bytes_of(address);
                out.push_back(now);
            }
        } else if (words >> now.number >> now.interface) {
            now.level = SOL_IP;
        }
    }
}

// "1    lo              ff020000000000000000000000000001     1 0000000C 0"
void read_igmp6(const std::string &text, std::vector<GroupOfInterface> &out) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        GroupOfInterface one;
        std::string digits;
        sockaddr_in6 address{};
        address.sin6_family = AF_INET6;
        if (!(words >> one.number >> one.interface >> digits) ||
            digits.size() != 2 * sizeof(address.sin6_addr))
            continue;
        for (std::size_t i = 0; i < sizeof(address.sin6_addr); ++i)
            std::from_chars(&digits[2 * i], &digits[2 * i] + 2, address.sin6_addr.s6_addr[i], 16);
        one.level = SOL_IPV6;
        one.address = bytes_of(address);
        out.push_back(std::move(one));
    }
}

} // namespace

Expected<std::vector<GroupOfInterface>> groups_of_interfaces(pid_t pid) {
    std::vector<GroupOfInterface> out;
    // A kernel without IPv6, or without multicasting, has no such file.
    if (auto text = proc::read(fmt::format("/proc/{}/net/igmp", pid)))
        read_igmp(*text, out);
    else if (text.error().code != ENOENT)
        return propagate(text);
    if (auto text = proc::read(fmt::format("/proc/{}/net/igmp6", pid)))
        read_igmp6(*text, out);
    else if (text.error().code != ENOENT)
        return propagate(text);
    return out;
}

Expected<std::vector<JoinedGroup>> joined_groups(int socket, const std::vector<GroupOfInterface> &all) {
    constexpr std::size_t kMostSources = 128; // net.ipv4.igmp_max_msf is 10, ipv6.mld_max_msf 64
    std::vector<JoinedGroup> out;
    for (const GroupOfInterface &each : all) {
        auto buffer = filter_for(kMostSources);
        group_filter head{};
        head.gf_interface = each.number;
        head.gf_numsrc = kMostSources;
        if (!as_storage(each.address, head.gf_group))
            continue;
        std::memcpy(buffer.data(), &head, offsetof(group_filter, gf_slist));
        auto size = static_cast<socklen_t>(buffer.size());
        if (getsockopt(socket, each.level, MCAST_MSFILTER, buffer.data(), &size) != 0) {
            // It has not joined it; or it is an IPv4 socket, which knows nothing of IPv6's.
            if (errno == EADDRNOTAVAIL || errno == ENOPROTOOPT || errno == EOPNOTSUPP || errno == EINVAL)
                continue;
            return std::unexpected(errno_error("ask for", "the multicast groups of a socket"));
        }
        std::memcpy(&head, buffer.data(), offsetof(group_filter, gf_slist));
        if (head.gf_numsrc > kMostSources)
            return failure(
                "save", "the multicast groups of a socket",
                fmt::format("one has {} sources, and the limit is {}", head.gf_numsrc, kMostSources));
        JoinedGroup one{.level = each.level,
                        .interface = each.interface,
                        .address = each.address,
                        .includes = head.gf_fmode == MCAST_INCLUDE,
                        .sources = {}};
        for (std::size_t i = 0; i < head.gf_numsrc; ++i)
            one.sources.emplace_back(reinterpret_cast<const char *>(buffer.data()) + GROUP_FILTER_SIZE(i),
                                     each.address.size());
        out.push_back(std::move(one));
    }
    return out;
}

Expected<void> join_again(int socket, const JoinedGroup &group, const std::string &what) {
    group_req wanted{};
    wanted.gr_interface = if_nametoindex(group.interface.c_str());
    if (wanted.gr_interface == 0)
        return std::unexpected(errno_error("find", "the interface " + quote(group.interface)));
    const auto refused = [&] {
        return std::unexpected(
            errno_error("join a multicast group on " + group.interface + " again with", what));
    };
    if (!as_storage(group.address, wanted.gr_group))
        return failure("join", "a multicast group", "its address is too long");
    if (setsockopt(socket, group.level, MCAST_JOIN_GROUP, &wanted, sizeof(wanted)) != 0)
        return refused();
    if (!group.includes && group.sources.empty())
        return {};
    auto buffer = filter_for(group.sources.size());
    group_filter head{};
    head.gf_interface = wanted.gr_interface;
    head.gf_group = wanted.gr_group;
    head.gf_fmode = group.includes ? MCAST_INCLUDE : MCAST_EXCLUDE;
    head.gf_numsrc = static_cast<std::uint32_t>(group.sources.size());
    std::memcpy(buffer.data(), &head, offsetof(group_filter, gf_slist));
    for (std::size_t i = 0; i < group.sources.size(); ++i) {
        sockaddr_storage source{};
        if (!as_storage(group.sources[i], source))
            return failure("join", "a multicast group", "its address is too long");
        std::memcpy(buffer.data() + GROUP_FILTER_SIZE(i), &source, sizeof(source));
    }
    if (setsockopt(socket, group.level, MCAST_MSFILTER, buffer.data(),
                   static_cast<socklen_t>(buffer.size())) != 0)
        return refused();
    return {};
}

} // namespace singularity::host
