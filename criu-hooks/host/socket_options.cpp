// SPDX-License-Identifier: GPL-2.0-or-later
#include "socket_options.hpp"

#include "common/name_space.hpp"
#include "common/proc.hpp"
#include "common/unique_fd.hpp"
#include "file.hpp"
#include "held_sockets.hpp"
#include "outside.hpp"
#include "proc.hpp"
#include "records.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/in6.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::host {
namespace {

namespace table {
constexpr std::uint32_t kProcess = 1;
constexpr std::uint32_t kDescriptor = 2;
constexpr std::uint32_t kOption = 3; // repeated
constexpr std::uint32_t kGroup = 4;  // repeated

constexpr std::uint32_t kLevel = 1; // of an option, and of a group
constexpr std::uint32_t kName = 2;
constexpr std::uint32_t kValue = 3;

constexpr std::uint32_t kInterface = 2; // of a group
constexpr std::uint32_t kAddress = 3;
constexpr std::uint32_t kIncludes = 4;
constexpr std::uint32_t kSource = 5; // repeated
} // namespace table

constexpr std::size_t kLargestValue = 64;

// Of which sockets; a kind of 0 stands for all.
struct Known {
    int domain;
    int protocol;
    int level;
    int name;
};
constexpr int kAny = 0;
constexpr int kUdpSegment = 103;      // linux/udp.h, whose other names netinet/udp.h has as well
constexpr int kUdpGro = 104;          //
constexpr int kUdpNoCheck6Send = 101; //
constexpr int kUdpNoCheck6Receive = 102;
constexpr int kPassPidfd = 76; // asm-generic/socket.h, Linux 6.5
constexpr int kNetlink = 270;  // SOL_NETLINK
constexpr int kUdp = IPPROTO_UDP;
constexpr int kTcp = IPPROTO_TCP;
constexpr int kLocalPortRange = 51; // linux/in.h, Linux 6.3

constexpr std::array kOptions{
    Known{kAny, kAny, SOL_SOCKET, SO_TIMESTAMP},
    Known{kAny, kAny, SOL_SOCKET, SO_TIMESTAMPNS},
    Known{kAny, kAny, SOL_SOCKET, SO_TIMESTAMPING},
    Known{kAny, kAny, SOL_SOCKET, SO_RXQ_OVFL},
    Known{kAny, kAny, SOL_SOCKET, SO_SELECT_ERR_QUEUE},
    Known{kAny, kAny, SOL_SOCKET, SO_ZEROCOPY},
    Known{kAny, kAny, SOL_SOCKET, SO_BUSY_POLL},
    Known{kAny, kAny, SOL_SOCKET, SO_MAX_PACING_RATE},
    Known{AF_UNIX, kAny, SOL_SOCKET, SO_PEEK_OFF},
    Known{AF_UNIX, kAny, SOL_SOCKET, kPassPidfd},

    Known{kAny, kTcp, SOL_TCP, TCP_SYNCNT},
    Known{kAny, kTcp, SOL_TCP, TCP_LINGER2},
    Known{kAny, kTcp, SOL_TCP, TCP_DEFER_ACCEPT},
    Known{kAny, kTcp, SOL_TCP, TCP_CONGESTION},
    Known{kAny, kTcp, SOL_TCP, TCP_THIN_LINEAR_TIMEOUTS},
    Known{kAny, kTcp, SOL_TCP, TCP_USER_TIMEOUT},
    Known{kAny, kTcp, SOL_TCP, TCP_FASTOPEN},
    Known{kAny, kTcp, SOL_TCP, TCP_FASTOPEN_CONNECT},
    Known{kAny, kTcp, SOL_TCP, TCP_FASTOPEN_NO_COOKIE},
    Known{kAny, kTcp, SOL_TCP, TCP_NOTSENT_LOWAT},
    Known{kAny, kTcp, SOL_TCP, TCP_SAVE_SYN},
    Known{kAny, kTcp, SOL_TCP, TCP_INQ},
    Known{kAny, kTcp, SOL_TCP, TCP_TX_DELAY},

    Known{kAny, kUdp, IPPROTO_UDP, kUdpSegment},
    Known{kAny, kUdp, IPPROTO_UDP, kUdpGro},
    Known{kAny, kUdp, IPPROTO_UDP, kUdpNoCheck6Send},
    Known{kAny, kUdp, IPPROTO_UDP, kUdpNoCheck6Receive},

    Known{AF_INET6, kAny, SOL_IP, IP_TOS}, // of its IPv4 packets; CRIU saves those of IPv4 sockets
    Known{AF_INET6, kAny, SOL_IP, IP_TTL},
    Known{AF_INET, kAny, SOL_IP, IP_MTU_DISCOVER},
    Known{AF_INET, kAny, SOL_IP, IP_RECVERR},
    Known{AF_INET, kAny, SOL_IP, IP_RECVTTL},
    Known{AF_INET, kAny, SOL_IP, IP_RECVTOS},
    Known{AF_INET, kAny, SOL_IP, IP_RECVOPTS},
    Known{AF_INET, kAny, SOL_IP, IP_RETOPTS},
    Known{AF_INET, kAny, SOL_IP, IP_RECVORIGDSTADDR},
    Known{AF_INET, kAny, SOL_IP, IP_MINTTL},
    Known{AF_INET, kAny, SOL_IP, IP_BIND_ADDRESS_NO_PORT},
    Known{AF_INET, kAny, SOL_IP, IP_RECVFRAGSIZE},
    Known{AF_INET, kAny, SOL_IP, IP_MULTICAST_TTL},
    Known{AF_INET, kAny, SOL_IP, IP_MULTICAST_LOOP},
    Known{AF_INET, kAny, SOL_IP, IP_MULTICAST_IF},
    Known{AF_INET, kAny, SOL_IP, IP_MULTICAST_ALL},
    Known{AF_INET, kAny, SOL_IP, kLocalPortRange},

    Known{AF_INET6, kAny, SOL_IPV6, IPV6_UNICAST_HOPS},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_TCLASS},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_MTU_DISCOVER},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_RECVERR},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_RECVHOPLIMIT},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_RECVTCLASS},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_RECVHOPOPTS},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_RECVRTHDR},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_RECVDSTOPTS},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_RECVPATHMTU},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_RECVORIGDSTADDR},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_RECVFRAGSIZE},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_DONTFRAG},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_AUTOFLOWLABEL},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_ADDR_PREFERENCES},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_MINHOPCOUNT},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_MULTICAST_HOPS},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_MULTICAST_LOOP},
    Known{AF_INET6, kAny, SOL_IPV6, IPV6_MULTICAST_ALL},

    Known{AF_NETLINK, kAny, kNetlink, NETLINK_PKTINFO},
    Known{AF_NETLINK, kAny, kNetlink, NETLINK_BROADCAST_ERROR},
    Known{AF_NETLINK, kAny, kNetlink, NETLINK_NO_ENOBUFS},
    Known{AF_NETLINK, kAny, kNetlink, NETLINK_CAP_ACK},
    Known{AF_NETLINK, kAny, kNetlink, NETLINK_EXT_ACK},
    Known{AF_NETLINK, kAny, kNetlink, NETLINK_GET_STRICT_CHK},
};

struct Sort {
    int domain = -1;
    int type = -1;
    int protocol = -1;
    auto operator<=>(const Sort &) const = default;
};

int number_of(int socket, int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    return getsockopt(socket, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}
Sort sort_of(int socket) {
    return {number_of(socket, SO_DOMAIN), number_of(socket, SO_TYPE), number_of(socket, SO_PROTOCOL)};
}

// Nothing where the kernel does not know it, or not of this socket.
std::optional<std::string> value_of(int socket, int level, int name) {
    std::string value(kLargestValue, '\0');
    auto size = static_cast<socklen_t>(value.size());
    if (getsockopt(socket, level, name, value.data(), &size) != 0)
        return std::nullopt;
    value.resize(size);
    return value;
}

// What new sockets of a kind have in the node's network, which may have defaults of its own.
class Defaults {
  public:
    explicit Defaults(pid_t init) : init_(init) {}

    // -1: none can be made.
    Expected<int> like(const Sort &sort) {
        if (const auto known = made_.find(sort); known != made_.end())
            return known->second.get();
        const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, init_, 0)));
        if (!pidfd)
            return std::unexpected(errno_error("open a pidfd of", "the node's init"));
        auto network = NameSpace::of_process(pidfd.get(), NameSpaceKind::kNetwork, "the node's init");
        auto visit = network ? NameSpaceVisit::to(*network) : propagate(network);
        if (!visit)
            return propagate(visit);
        return made_.emplace(sort, UniqueFd(::socket(sort.domain, sort.type | SOCK_CLOEXEC, sort.protocol)))
            .first->second.get();
    }

  private:
    pid_t init_;
    std::map<Sort, UniqueFd> made_;
};

// Of connections the kernel keeps other things where these are: how far away the other end is.
bool is_of_datagrams(const Known &option) {
    constexpr std::array kIp{IP_MULTICAST_TTL, IP_MULTICAST_LOOP, IP_MULTICAST_IF, IP_MULTICAST_ALL};
    constexpr std::array kIpv6{IPV6_MULTICAST_HOPS, IPV6_MULTICAST_LOOP, IPV6_MULTICAST_ALL};
    return (option.level == SOL_IP && std::ranges::find(kIp, option.name) != kIp.end()) ||
           (option.level == SOL_IPV6 && std::ranges::find(kIpv6, option.name) != kIpv6.end());
}

Expected<std::vector<SocketOption>> options_of(int socket, const Sort &sort, Defaults &defaults) {
    std::vector<SocketOption> out;
    std::optional<int> fresh;
    for (const Known &each : kOptions) {
        if ((each.domain != kAny && each.domain != sort.domain) ||
            (each.protocol != kAny && each.protocol != sort.protocol) ||
            (sort.type == SOCK_STREAM && is_of_datagrams(each)))
            continue;
        auto value = value_of(socket, each.level, each.name);
        if (!value)
            continue;
        if (!fresh) {
            auto like = defaults.like(sort);
            if (!like)
                return propagate(like);
            fresh = *like;
        }
        if (value != value_of(*fresh, each.level, each.name))
            out.push_back({.level = each.level, .name = each.name, .value = std::move(*value)});
    }
    return out;
}

std::string encoded(const SocketSettings &one) {
    std::string out = encoded_field(table::kProcess, static_cast<std::uint64_t>(one.inner)) +
                      encoded_field(table::kDescriptor, static_cast<std::uint64_t>(one.descriptor));
    for (const SocketOption &each : one.options)
        out += encoded_field(table::kOption,
                             encoded_field(table::kLevel, static_cast<std::uint64_t>(each.level)) +
                                 encoded_field(table::kName, static_cast<std::uint64_t>(each.name)) +
                                 encoded_field(table::kValue, each.value));
    for (const JoinedGroup &each : one.groups) {
        std::string group = encoded_field(table::kLevel, static_cast<std::uint64_t>(each.level)) +
                            encoded_field(table::kInterface, each.interface) +
                            encoded_field(table::kAddress, each.address) +
                            encoded_field(table::kIncludes, std::uint64_t{each.includes});
        for (const std::string &source : each.sources)
            group += encoded_field(table::kSource, source);
        out += encoded_field(table::kGroup, group);
    }
    return out;
}

int number_in(const std::vector<Field> &fields, std::uint32_t number) {
    const Field *const one = find(fields, number);
    return one == nullptr ? 0 : static_cast<int>(one->value);
}
std::string text_in(const std::vector<Field> &fields, std::uint32_t number) {
    const Field *const one = find(fields, number);
    return one == nullptr ? std::string() : std::string(one->text());
}

Expected<SocketSettings> decoded(Bytes message) {
    auto fields = fields_of(message);
    if (!fields)
        return propagate(fields);
    SocketSettings out;
    out.inner = number_in(*fields, table::kProcess);
    out.descriptor = number_in(*fields, table::kDescriptor);
    for (const Field &each : *fields) {
        if (each.number != table::kOption && each.number != table::kGroup)
            continue;
        auto inside = fields_of(each.bytes);
        if (!inside)
            return propagate(inside);
        if (each.number == table::kOption) {
            out.options.push_back({.level = number_in(*inside, table::kLevel),
                                   .name = number_in(*inside, table::kName),
                                   .value = text_in(*inside, table::kValue)});
            continue;
        }
        JoinedGroup group{.level = number_in(*inside, table::kLevel),
                          .interface = text_in(*inside, table::kInterface),
                          .address = text_in(*inside, table::kAddress),
                          .includes = number_in(*inside, table::kIncludes) != 0,
                          .sources = {}};
        for (const Field &source : *inside)
            if (source.number == table::kSource)
                group.sources.emplace_back(source.text());
        out.groups.push_back(std::move(group));
    }
    return out;
}

// Those that the caller looks after.
std::set<std::uint64_t> given_to(const DumpRequest &request) {
    std::set<std::uint64_t> out;
    for (const OutsideDescriptor &each : request.descriptors) {
        struct stat about{};
        if (fstat(each.fd, &about) == 0 && S_ISSOCK(about.st_mode))
            out.insert(about.st_ino);
    }
    return out;
}

UniqueFd descriptor_of(pid_t pid, int number) {
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    return UniqueFd(pidfd ? static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.get(), number, 0)) : -1);
}

// The table holds what was set once; so a kernel that has it and refuses it is one that lacks a module.
bool may_be_missing(const SocketOption &option) {
    return option.level == SOL_TCP && option.name == TCP_CONGESTION;
}

Expected<void> set(int socket, const SocketOption &option, const std::string &what) {
    if (setsockopt(socket, option.level, option.name, option.value.data(),
                   static_cast<socklen_t>(option.value.size())) == 0 ||
        may_be_missing(option))
        return {};
    return std::unexpected(
        errno_error(fmt::format("set option {} of level {} of", option.name, option.level), what));
}

} // namespace

Expected<void> keep_socket_options(const DumpRequest &request) {
    auto node = processes_of(request.init);
    if (!node)
        return propagate(node);
    std::map<pid_t, pid_t> inner;
    for (const Process &each : *node)
        inner.emplace(each.pid, each.inner);
    auto held = held_sockets(request.init);
    if (!held)
        return propagate(held);
    auto candidates = groups_of_interfaces(request.init);
    if (!candidates)
        return propagate(candidates);
    const auto not_ours = given_to(request);
    Defaults defaults(request.init);
    std::vector<std::string> messages;
    for (const auto &[inode, by] : *held) {
        const auto process = inner.find(by.pid);
        if (not_ours.contains(inode) || process == inner.end())
            continue;
        const UniqueFd socket = descriptor_of(by.pid, by.number);
        if (!socket)
            return std::unexpected(errno_error("reach", by.what));
        const Sort sort = sort_of(socket.get());
        SocketSettings one{.inner = process->second, .descriptor = by.number, .options = {}, .groups = {}};
        auto options = options_of(socket.get(), sort, defaults);
        if (!options)
            return propagate(options);
        one.options = std::move(*options);
        if (sort.domain == AF_INET || sort.domain == AF_INET6) {
            auto joined = joined_groups(socket.get(), *candidates);
            if (!joined)
                return propagate(joined);
            one.groups = std::move(*joined);
        }
        if (!one.options.empty() || !one.groups.empty())
            messages.push_back(encoded(one));
    }
    if (messages.empty())
        return {};
    return write_file_at(request.images, kSocketsTable, framed(Magic::kSocketOptions, messages));
}

Expected<std::vector<SocketSettings>> read_socket_options(int images) {
    std::vector<SocketSettings> out;
    struct stat about{};
    if (fstatat(images, kSocketsTable, &about, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT)
        return out;
    auto read =
        for_each_record(images, kSocketsTable, Magic::kSocketOptions, [&](Bytes message) -> Expected<void> {
            auto one = decoded(message);
            if (!one)
                return propagate(one);
            out.push_back(std::move(*one));
            return {};
        });
    if (!read)
        return propagate(read);
    return out;
}

Expected<void> set_socket_options(const RestoreRequest &request, pid_t init) {
    auto all = read_socket_options(request.images);
    if (!all)
        return propagate(all);
    if (all->empty())
        return {};
    auto node = processes_of(init);
    if (!node)
        return propagate(node);
    for (const SocketSettings &one : *all) {
        const auto process = std::ranges::find(*node, one.inner, &Process::inner);
        if (process == node->end())
            return failure("restore", "the options of a socket",
                           fmt::format("no process {} was restored", one.inner));
        const std::string what = fmt::format("descriptor {} of {}", one.descriptor, process->title());
        const UniqueFd socket = descriptor_of(process->pid, one.descriptor);
        if (!socket)
            return std::unexpected(errno_error("reach", what));
        for (const SocketOption &each : one.options)
            if (auto good = set(socket.get(), each, what); !good)
                return good;
        if (one.groups.empty())
            continue;
        auto network =
            NameSpace::open(fmt::format("/proc/self/fd/{}", request.network), NameSpaceKind::kNetwork);
        auto visit = network ? NameSpaceVisit::to(*network) : propagate(network);
        if (!visit)
            return propagate(visit);
        for (const JoinedGroup &each : one.groups)
            if (auto good = join_again(socket.get(), each, what); !good)
                return good;
    }
    return {};
}

} // namespace singularity::host
