// SPDX-License-Identifier: GPL-2.0-or-later
#include "children.hpp"

#include "file.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>

#include <sys/wait.h>

namespace singularity::host {
namespace {

constexpr std::size_t kLargestList = std::size_t{4} << 20U;

Expected<std::set<pid_t>> listed() {
    auto text = read_whole("/proc/thread-self/children", kLargestList);
    if (!text)
        return propagate(text);
    std::set<pid_t> children;
    const char *at = text->data();
    const char *const end = at + text->size();
    while (at < end) {
        pid_t pid = 0;
        const auto [next, error] = std::from_chars(at, end, pid);
        if (error == std::errc())
            children.insert(pid);
        at = next == at ? at + 1 : next;
    }
    return children;
}

} // namespace

Expected<Children> Children::of_this_thread() {
    auto now = listed();
    if (!now)
        return propagate(now);
    return Children(std::move(*now));
}

Expected<bool> Children::new_one_has_ended(pid_t but) const {
    auto now = listed();
    if (!now)
        return propagate(now);
    return std::ranges::any_of(*now, [&](pid_t pid) {
        siginfo_t info{};
        return pid != but && !before_.contains(pid) &&
               waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
               info.si_pid == pid;
    });
}

Expected<void> Children::end_new_ones(const Deadline &deadline) const {
    auto now = listed();
    if (!now)
        return propagate(now);
    for (const pid_t pid : *now) {
        if (before_.contains(pid))
            continue;
        kill(pid, SIGKILL); // the init of a PID namespace takes everything in it along
        const auto reaped = [pid] { return waitpid(pid, nullptr, WNOHANG) != 0; };
        if (auto gone = wait_until(reaped, deadline, "the end of a half-restored process"); !gone)
            return gone;
    }
    return {};
}

} // namespace singularity::host
