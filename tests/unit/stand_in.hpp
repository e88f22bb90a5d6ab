// SPDX-License-Identifier: GPL-2.0-or-later
// Stand-ins for commands, and the loop of their runner, for tests: a shell is the command, and a child of the
// test is its stand-in.
#pragma once

#include "cmocka.hpp"
#include "commands/runner.hpp"
#include "commands/stand_in.hpp"
#include "common/deadline.hpp"
#include "common/unique_fd.hpp"
#include "common/unix_socket.hpp"
#include "node/door.hpp"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::test {

using namespace std::chrono_literals;
using commands::Runner;

inline constexpr const char *kShell = "/bin/sh";
inline constexpr auto kPatience = 60s;
inline constexpr std::uint32_t kRank = 0;

// Goes with the object.
struct Scratch {
    std::filesystem::path path;
    Scratch() {
        std::string name = (std::filesystem::temp_directory_path() / "commands.XXXXXX").native();
        assert_non_null(mkdtemp(name.data()));
        path = name;
    }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    Scratch(Scratch &&) = delete;
    Scratch &operator=(Scratch &&) = delete;
    ~Scratch() { std::filesystem::remove_all(path); }
    [[nodiscard]] commands::Doors door(std::uint32_t rank = kRank) const {
        return {.directory = path, .rank = rank};
    }
    [[nodiscard]] std::filesystem::path socket(std::uint32_t rank = kRank) const {
        return path / node::door_name(rank);
    }
    [[nodiscard]] UniqueFd listen(std::uint32_t rank = kRank) const {
        auto made = listen_unix(socket(rank), 0600, 16);
        assert_true(made.has_value());
        return std::move(*made);
    }
};

inline UniqueFd memory() { return UniqueFd(memfd_create("stream", 0)); }

inline std::string content(const UniqueFd &fd) {
    struct stat about{};
    assert_int_equal(fstat(fd.get(), &about), 0);
    std::string out(static_cast<std::size_t>(about.st_size), '\0');
    assert_int_equal(pread(fd.get(), out.data(), out.size(), 0), out.size());
    return out;
}

// A process that stands for a command, with streams that the test can look into.
struct StandIn {
    UniqueFd in = memory();
    UniqueFd out = memory();
    UniqueFd err = memory();
    pid_t pid = -1;
    int status = -1;

    StandIn() = default;
    StandIn(const StandIn &) = delete;
    StandIn &operator=(const StandIn &) = delete;
    StandIn(StandIn &&) = delete;
    StandIn &operator=(StandIn &&) = delete;
    ~StandIn() {
        if (pid > 0 && status < 0) {
            kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        }
    }

    // What the child does to be the stand-in.
    void fork_to(const std::function<int()> &what) {
        pid = fork();
        assert_true(pid >= 0);
        if (pid > 0)
            return;
        for (int stream = 0; const UniqueFd *fd : {&in, &out, &err})
            dup2(fd->get(), stream++);
        close_range(STDERR_FILENO + 1, ~0U, 0); // the test's connections would stay open in this process
        _exit(what());
    }
    void stand(
        const commands::Doors &door, const commands::Command &command,
        const std::function<void()> &first = [] {}, const commands::Patience &patience = {.pause_ms = 5}) {
        fork_to([&] {
            first();
            return commands::stand_for(command, door, patience);
        });
    }
    void run(const commands::Doors &door, const std::string &script, const std::string &path = kShell) {
        stand(door, {.path = path, .arguments = {"sh", "-c", script}, .environment = {"PATH=/usr/bin:/bin"}});
    }
    [[nodiscard]] bool ended() { return status >= 0 || waitpid(pid, &status, WNOHANG) == pid; }
};

// The loop of the process of which the runner is a part.
inline void until(Runner &runner, const std::function<bool()> &holds, const char *what,
                  const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    for (const auto deadline = Deadline::after(kPatience); !holds();) {
        if (deadline.expired())
            fail(timeout_error(deadline, what).message(), file, line);
        std::vector<pollfd> fds;
        runner.watch(fds);
        static_cast<void>(poll(fds.data(), fds.size(), 5)); // the condition may be one of other processes
        runner.work();
    }
}

inline int end_of(Runner &runner, StandIn &one) {
    until(runner, [&] { return one.ended(); }, "the end of a stand-in");
    return one.status;
}

inline void expect_exit(Runner &runner, StandIn &one, int status, const char *file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
    const int found = end_of(runner, one);
    if (!WIFEXITED(found) || WEXITSTATUS(found) != status)
        fail("status " + std::to_string(found) + ", not exit status " + std::to_string(status) + ": " +
                 content(one.err),
             file, line);
}

inline void rests(Runner &runner) {
    until(runner, [&] { return runner.at_rest(); }, "the runner's rest");
    assert_int_equal(runner.running().size(), 0);
}

inline commands::Setting only(std::vector<std::filesystem::path> paths) {
    return {.commands = std::move(paths), .adapt = {}, .number = {}, .steps_are = {}};
}

} // namespace singularity::test
