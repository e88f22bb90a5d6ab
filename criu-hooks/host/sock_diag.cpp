// SPDX-License-Identifier: GPL-2.0-or-later
#include "sock_diag.hpp"

#include "common/name_space.hpp"
#include "common/unique_fd.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::host {
namespace {

Expected<UniqueFd> diag_socket(pid_t pid) {
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd)
        return std::unexpected(errno_error("open a pidfd of", fmt::format("process {}", pid)));
    auto network =
        NameSpace::of_process(pidfd.get(), NameSpaceKind::kNetwork, fmt::format("process {}", pid));
    auto visit = network ? NameSpaceVisit::to(*network) : propagate(network);
    if (!visit)
        return propagate(visit);
    UniqueFd out(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    if (!out)
        return std::unexpected(errno_error("make", "a netlink socket"));
    return out;
}

Expected<void> ask(int socket, const SocketQuestion &question) {
    nlmsghdr head{};
    head.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(question.body.size()));
    head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    std::vector<std::byte> request(head.nlmsg_len);
    std::memcpy(request.data(), &head, sizeof(head));
    std::memcpy(request.data() + NLMSG_HDRLEN, question.body.data(), question.body.size());
    if (send(socket, request.data(), request.size(), 0) != static_cast<ssize_t>(request.size()))
        return std::unexpected(errno_error("ask for", std::string(question.what)));
    return {};
}

} // namespace

Expected<void> for_each_socket(pid_t pid, const SocketQuestion &question,
                               const std::function<void(nlmsghdr *)> &see) {
    auto socket = diag_socket(pid);
    if (!socket)
        return propagate(socket);
    if (auto asked = ask(socket->get(), question); !asked)
        return asked;
    alignas(nlmsghdr) std::array<char, 65536> buffer{};
    for (;;) {
        const ssize_t got = recv(socket->get(), buffer.data(), buffer.size(), 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return std::unexpected(errno_error("read", std::string(question.what)));
        auto left = static_cast<unsigned>(got);
        for (auto *message = reinterpret_cast<nlmsghdr *>(buffer.data()); NLMSG_OK(message, left);
             message = NLMSG_NEXT(message, left)) {
            if (message->nlmsg_type == NLMSG_DONE)
                return {};
            if (message->nlmsg_type == NLMSG_ERROR)
                return failure(
                    "read", std::string(question.what),
                    fmt::format("the kernel refuses: is {} built in or loadable?", question.module));
            see(message);
        }
    }
}

} // namespace singularity::host
