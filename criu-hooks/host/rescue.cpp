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

// True if it was in repair mode.
Expected<bool> end_repair_of(int socket) {
    int protocol = 0;
    socklen_t size = sizeof(protocol);
    if (getsockopt(socket, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 || protocol != IPPROTO_TCP)
        return false;
    int on = 0;
    size = sizeof(on);
    if (getsockopt(socket, IPPROTO_TCP, TCP_REPAIR, &on, &size) != 0)
        return std::unexpected(errno_error("examine", "a TCP socket"));
    const int off = TCP_REPAIR_OFF;
    if (on != 0 && setsockopt(socket, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off)) != 0)
        return std::unexpected(errno_error("end the repair mode of", "a TCP socket"));
    return on != 0;
}

Expected<std::size_t> end_repair_in(const Process &process) {
    std::size_t count = 0;
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
    auto directory = open_file(fmt::format("/proc/{}/fd", process.pid), O_RDONLY | O_DIRECTORY);
    if (!pidfd || !directory)
        return count; // it has ended, and its sockets with it
    auto names = names_in(directory->get());
    if (!names)
        return count;
    for (const std::string &name : *names) {
        auto link = read_link(fmt::format("/proc/{}/fd/{}", process.pid, name));
        if (!link || !link->starts_with("socket:"))
            continue;
        const UniqueFd socket(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.get(), std::stoi(name), 0)));
        if (!socket)
            continue; // closed meanwhile
        auto ended = end_repair_of(socket.get());
        if (!ended)
            return propagate(ended);
        count += *ended ? 1 : 0;
    }
    return count;
}

// Of processes that were not stopped before. One that has ended gets no signal, and needs none.
void signal_all(const std::vector<Process> &node, int number) {
    for (const Process &each : node)
        if (each.state != 'T' && each.state != 'Z')
            kill(each.pid, number);
}

} // namespace

Expected<void> kill_at_a_good_moment(Criu &criu, const std::vector<Process> &before,
                                     const Deadline &deadline) {
    const pid_t init = before.front().pid;
    const auto good = [&] {
        if (!criu.signal(SIGSTOP))
            return true;
        const auto still = [&] { return is_still(criu.pid()); };
        if (wait_until(still, Deadline::after(1s), "criu") && can_be_left(init))
            return true;
        static_cast<void>(criu.signal(SIGCONT)); // it can only have ended
        return false;
    };
    static_cast<void>(wait_until(good, deadline, "a good moment")); // a bad one is better than none
    signal_all(before, SIGSTOP);
    criu.kill_and_reap();
    auto ended = end_tcp_repair(before);
    signal_all(before, SIGCONT);
    return ended ? Expected<void>() : propagate(ended);
}

Expected<std::size_t> end_tcp_repair(const std::vector<Process> &node) {
    std::size_t count = 0;
    for (const Process &each : node) {
        auto ended = end_repair_in(each);
        if (!ended)
            return ended;
        count += *ended;
    }
    return count;
}

namespace {

std::unexpected<Error> lost(const Process &process, std::string_view how) {
    return failure("save", process.title(), fmt::format("criu was killed while it was inside; {}", how),
                   kNodeLost);
}

Expected<void> free_of_criu(const Process &process, const Deadline &deadline) {
    Expected<bool> free = true;
    const auto settled = [&] {
        free = remove_remains(process, deadline);
        return !free || *free;
    };
    if (!wait_until(settled, deadline, process.title()))
        return lost(process, "it still runs criu's code");
    if (!free)
        return lost(process, free.error().message());
    return {};
}

} // namespace

Expected<void> heal(const std::vector<Process> &before, const Deadline &deadline) {
    auto repaired = end_tcp_repair(before);
    if (!repaired)
        return propagate(repaired);
    if (*repaired > 0) // a program that uses such a socket gets EPERM, and may have
        return failure("save", "the virtual node",
                       "criu was killed while it was inside of its TCP connections", kNodeLost);
    for (const Process &each : before) {
        if (each.state == 'Z')
            continue;
        if (auto freed = free_of_criu(each, deadline); !freed)
            return freed;
        const Presence presence = presence_in(each);
        if (presence == Presence::kGone)
            return lost(each, "it has ended");
        if (presence == Presence::kEntangled)
            return lost(each, "its code was overwritten");
    }
    return {};
}

Expected<void> tidy_up(const std::vector<Process> &node, const Deadline &deadline) {
    for (const Process &each : node) {
        if (each.state == 'Z')
            continue;
        if (auto freed = free_of_criu(each, deadline); !freed && presence_in(each) != Presence::kGone)
            return freed;
    }
    return {};
}

} // namespace singularity::host
