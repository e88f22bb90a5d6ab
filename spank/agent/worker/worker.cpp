// SPDX-License-Identifier: GPL-2.0-or-later
#include "worker.hpp"

#include "agent/limits/share.hpp"
#include "agent/log.hpp"
#include "node/process.hpp"

#include <array>
#include <csignal>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

#ifdef SINGULARITY_CHECKPOINTS
constexpr bool kBuilt = true;
#else
constexpr bool kBuilt = false;
#endif

[[noreturn]] void become_worker(const std::filesystem::path &program, int socket) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    setsid();
    if (socket == kWorkerSocket)
        static_cast<void>(fcntl(socket, F_SETFD, 0));
    else
        static_cast<void>(dup2(socket, kWorkerSocket));
    close_range(kWorkerSocket + 1, ~0U, 0);
    std::array<char *, 2> arguments{const_cast<char *>(program.c_str()), nullptr}; // execve does not write
    execve(program.c_str(), arguments.data(), environ);
    _exit(EXIT_FAILURE);
}

} // namespace

Expected<void> Worker::room_for_one_more(uid_t uid, std::string_view doing, std::string_view on) {
    if (auto why = no_room_for(Budget::workers, uid))
        return failure(std::string(doing), std::string(on), *std::move(why), EDQUOT);
    return {};
}

Expected<Worker> Worker::start_process(const Libraries &libraries, uid_t uid) {
    const auto program = libraries.worker();
    if (!kBuilt)
        return failure(
            "run", program.native(),
            "this build has no checkpoints: they need CRIU, the checkpoint store and the device proxy",
            kNotBuilt);
    if (access(program.c_str(), X_OK) != 0)
        return std::unexpected(errno_error("run", program.native()));
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return std::unexpected(errno_error("make a socket for", program.native()));
    UniqueFd ours(ends[0]);
    const UniqueFd theirs(ends[1]);
    const pid_t pid = fork();
    if (pid < 0)
        return std::unexpected(errno_error("start", program.native()));
    if (pid == 0)
        become_worker(program, theirs.get());
    UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    UniqueFd held(fcntl(pidfd.get(), F_DUPFD_CLOEXEC, 0));
    if (!pidfd || !held)
        return std::unexpected(errno_error("hold", program.native()));
    hold_until_ended(Share(Budget::workers, uid), std::move(held));
    node::widen(ours.get());
    return Worker(std::move(ours), std::move(pidfd));
}

Expected<void> Worker::send(const std::string &bytes, std::span<const int> descriptors) const {
    return sent(node::send_packet(socket_.get(), bytes, descriptors));
}

Expected<void> Worker::sent(int code) {
    return code == 0 ? Expected<void>() : std::unexpected(errno_error("ask", "the worker", code));
}

bool Worker::ended() const { return node::has_ended(pidfd_); }

void Worker::kill() const {
    if (auto killed = node::kill_process(pidfd_, "a worker"); !killed)
        kLog.error("{}", killed.error().message());
}

void Worker::watch(std::vector<int> &fds) const { fds.push_back(socket_ ? socket_.get() : pidfd_.get()); }

} // namespace singularity::agent
