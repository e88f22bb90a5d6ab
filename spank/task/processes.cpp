// SPDX-License-Identifier: GPL-2.0-or-later
#include "processes.hpp"

#include "common/deadline.hpp"
#include "common/proc.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace singularity::task {

namespace {

using namespace std::chrono_literals;

constexpr auto kEndPatience = 10s;

struct Stat {
    char state = '?';
    pid_t parent = 0;
};

// "PID (NAME) STATE PARENT ...", where the name may hold anything.
Stat stat_in(const std::string &text) {
    Stat out;
    if (const auto end = text.rfind(')'); end != std::string::npos)
        std::istringstream(text.substr(end + 1)) >> out.state >> out.parent;
    return out;
}

bool has_ended(const Descendant &one) { return one.state == 'Z' || one.state == 'X'; }

// To all for whom `done` does not hold, until it does for all. Who has got it.
Expected<std::set<pid_t>> signal_until(int number, const char *what,
                                       const std::function<bool(const Descendant &)> &done) {
    std::set<pid_t> out;
    Expected<void> trouble;
    const auto all_done = [&] {
        const auto all = descendants();
        if (!all) {
            trouble = std::unexpected(all.error());
            return true;
        }
        bool reached = true;
        for (const auto &one : *all)
            if (!done(one)) {
                reached = false;
                if (kill(one.pid, number) == 0)
                    out.insert(one.pid);
            }
        return reached;
    };
    if (auto waited = wait_until(all_done, Deadline::after(kEndPatience), what); !waited)
        return propagate(waited);
    return trouble ? Expected<std::set<pid_t>>(std::move(out)) : propagate(trouble);
}

} // namespace

Expected<std::vector<Descendant>> descendants() {
    std::multimap<pid_t, std::pair<pid_t, char>> children;
    std::error_code error;
    for (const auto &entry : std::filesystem::directory_iterator("/proc", error)) {
        const auto name = entry.path().filename().native();
        pid_t pid = 0;
        if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc())
            continue;
        const auto text = proc::read(entry.path() / "stat");
        if (!text) // it has ended
            continue;
        const auto about = stat_in(*text);
        children.emplace(about.parent, std::pair(pid, about.state));
    }
    if (error)
        return failure("look into", "/proc", error.message(), error.value());
    std::vector<Descendant> out;
    std::vector<pid_t> open{getpid()};
    while (!open.empty()) {
        const pid_t parent = open.back();
        open.pop_back();
        const auto [begin, end] = children.equal_range(parent);
        for (auto child = begin; child != end; ++child) {
            const auto [pid, state] = child->second;
            open.push_back(pid);
            std::error_code unknown;
            const auto file = std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), unknown);
            out.push_back({.pid = pid, .state = state, .program = file.filename().native()});
        }
    }
    return out;
}

Expected<std::vector<pid_t>> stop_all(const std::function<bool(const Descendant &)> &wanted) {
    auto reached = signal_until(SIGSTOP, "all processes to stand still", [&](const Descendant &one) {
        return !wanted(one) || one.state == 'T' || one.state == 't' || has_ended(one);
    });
    if (!reached)
        return propagate(reached);
    return std::vector<pid_t>(reached->begin(), reached->end());
}

Expected<void> kill_all() {
    auto killed = signal_until(SIGKILL, "all processes to end", has_ended);
    return killed ? Expected<void>() : propagate(killed);
}

} // namespace singularity::task
