// SPDX-License-Identifier: GPL-2.0-or-later
#include "removal.hpp"

#include "agent/limits/share.hpp"
#include "agent/log.hpp"
#include "common/deadline.hpp"
#include "node/process.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

constexpr std::chrono::seconds kRemovalPatience{10};

void remove_all(const std::vector<std::filesystem::path> &paths) {
    for (const auto &path : paths) {
        std::error_code error;
        // A worker that ends removes its own at the same time.
        const auto removed = [&] {
            std::filesystem::remove_all(path, error);
            return error != std::errc::no_such_file_or_directory && error != std::errc::directory_not_empty;
        };
        if (!wait_until(removed, Deadline::after(kRemovalPatience), path.native()) || error)
            kLog.error("cannot remove {}: {}", path.native(), error.message());
    }
}

[[noreturn]] void remove_and_end(const std::function<void()> &remove, pid_t agent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent)
        _exit(EXIT_FAILURE);
    // The agent's connections must not stay open through us.
    close_range(STDERR_FILENO + 1, ~0U, 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    try {
        remove();
    } catch (const std::exception &error) {
        kLog.error("cannot go on removing files: {}", error.what());
    }
    _exit(EXIT_SUCCESS);
}

// Beside its place, so that a new node of the name has it to itself. No node's name begins with a dot.
Expected<std::filesystem::path> moved_aside(const std::filesystem::path &path) {
    for (int number = 0;; ++number) {
        auto beside = path.parent_path() / fmt::format(".{}.{}", path.filename().native(), number);
        if (std::rename(path.c_str(), beside.c_str()) == 0)
            return beside;
        if (errno != ENOTEMPTY && errno != EEXIST)
            return std::unexpected(errno_error("move aside", path.native()));
    }
}

} // namespace

Expected<Removal> Removal::start(const std::vector<std::filesystem::path> &paths, uid_t uid) {
    return start([&paths] { remove_all(paths); }, uid);
}

Expected<Removal> Removal::start(const std::function<void()> &remove, uid_t uid) {
    const pid_t agent = getpid();
    const pid_t child = fork();
    if (child < 0)
        return std::unexpected(errno_error("start", "a process that removes files"));
    if (child == 0)
        remove_and_end(remove, agent);
    UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
    UniqueFd held(fcntl(pidfd.get(), F_DUPFD_CLOEXEC, 0));
    if (!pidfd || !held)
        return std::unexpected(errno_error("hold", "a process that removes files"));
    hold_until_ended(Share(Budget::workers, uid), std::move(held));
    return Removal(std::move(pidfd));
}

bool Removal::ended() const { return node::has_ended(pidfd_); }

Expected<void> clear_staging(const std::filesystem::path &staging,
                             const std::function<bool(const std::string &)> &known) {
    std::vector<std::filesystem::path> left;
    std::error_code error;
    for (const auto &entry : std::filesystem::directory_iterator(staging, error)) {
        const auto name = entry.path().filename().native();
        if (name.starts_with('.')) {
            left.push_back(entry.path());
        } else if (!known(name)) {
            auto moved = moved_aside(entry.path());
            if (!moved)
                return propagate(moved);
            left.push_back(std::move(*moved));
        }
    }
    if (error)
        return failure("look into", staging.native(), error.message(), error.value());
    if (left.empty())
        return {};
    auto started = Removal::start(left);
    if (!started)
        return propagate(started);
    return {};
}

} // namespace singularity::agent
