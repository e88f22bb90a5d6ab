// SPDX-License-Identifier: GPL-2.0-or-later
#include "rescue.hpp"

#include "common/unique_fd.hpp"
#include "criu-hooks/host/node.hpp"
#include "file.hpp"
#include "parasite.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::host {
namespace {

using namespace std::chrono_literals;

bool can_be_left(pid_t init) {
    auto node = processes_of(init);
    return node && std::ranges::all_of(
                       *node, [](const Process &each) { return presence_in(each) != Presence::kEntangled; });
}

// criu cannot change anything while it is stopped, or asleep in the kernel where no signal reaches it.
bool is_still(pid_t pid) {
    auto status = status_of(pid);
    return status && (status->state == 'T' || status->state == 'D' || status->state == 'Z');
}

Expected<void> end_repair_of(int socket) {
    int on = 0;
    socklen_t size = sizeof(on);
    int protocol = 0;
    socklen_t protocol_size = sizeof(protocol);
    if (getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &protocol_size) != 0 ||
        protocol != IPPROTO_TCP)
        return {};
    if (getsockopt(socket, IPPROTO_TCP, TCP_REPAIR, &on, &size) != 0)
        return std::unexpected(errno_error("examine", "a TCP socket"));
    const int off = TCP_REPAIR_OFF;
    if (on != 0 && setsockopt(socket, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off)) != 0)
        return std::unexpected(errno_error("end the repair mode of", "a TCP socket"));
    return {};
}

Expected<void> end_repair_in(const Process &process) {
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
    if (!pidfd)
        return {}; // it has ended, and its sockets with it
    auto directory = open_file(fmt::format("/proc/{}/fd", process.pid), O_RDONLY | O_DIRECTORY);
    if (!directory)
        return {};
    auto names = names_in(directory->get());
    if (!names)
        return {};
    for (const std::string &name : *names) {
        auto link = read_link(fmt::format("/proc/{}/fd/{}", process.pid, name));
        if (!link || !link->starts_with("socket:"))
            continue;
        const UniqueFd socket(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.get(), std::stoi(name), 0)));
        if (!socket)
            continue; // closed meanwhile
        if (auto ended = end_repair_of(socket.get()); !ended)
            return ended;
    }
    return {};
}

} // namespace

void kill_at_a_good_moment(Criu &criu, pid_t init, const Deadline &deadline) {
    const auto good = [&] {
        if (!criu.signal(SIGSTOP))
            return true;
        if (wait_until([&] { return is_still(criu.pid()); }, Deadline::after(1s), "criu") &&
            can_be_left(init))
            return true;
        static_cast<void>(criu.signal(SIGCONT)); // it can only have ended
        return false;
    };
    static_cast<void>(wait_until(good, deadline, "a good moment")); // a bad one is better than none
    criu.kill_and_reap();
}

Expected<void> end_tcp_repair(const std::vector<Process> &node) {
    for (const Process &each : node)
        if (auto ended = end_repair_in(each); !ended)
            return ended;
    return {};
}

Expected<void> heal(const std::vector<Process> &before, const Deadline &deadline) {
    if (auto ended = end_tcp_repair(before); !ended)
        return ended;
    const auto lost = [](const Process &process, std::string_view how) {
        return failure("save", process.title(), fmt::format("criu was killed while it was inside; {}", how),
                       kNodeLost);
    };
    for (const Process &each : before) {
        if (each.state == 'Z')
            continue;
        Expected<bool> free = true;
        const auto settled = [&] {
            free = remove_remains(each, deadline);
            return !free || *free;
        };
        if (!wait_until(settled, deadline, each.title()))
            return lost(each, "it still runs criu's code");
        if (!free)
            return lost(each, free.error().message());
        const Presence presence = presence_in(each);
        if (presence == Presence::kGone)
            return lost(each, "it has ended");
        if (presence == Presence::kEntangled)
            return lost(each, "its code was overwritten");
    }
    return {};
}

} // namespace singularity::host
