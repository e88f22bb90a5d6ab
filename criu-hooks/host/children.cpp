// SPDX-License-Identifier: GPL-2.0-or-later
#include "children.hpp"

#include "common/proc.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <iterator>

#include <sys/wait.h>

namespace singularity::host {
namespace {

constexpr const char *kThisThread = "/proc/thread-self";

} // namespace

Expected<std::set<pid_t>> children_of(const std::filesystem::path &of) {
    auto text = proc::read((of / "children").native());
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

bool is_to_be_reaped(pid_t child) {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == child;
}

Expected<Children> Children::of_this_thread() {
    auto now = children_of(kThisThread);
    if (!now)
        return propagate(now);
    return Children(std::move(*now));
}

Expected<std::vector<pid_t>> Children::new_ones() const {
    auto now = children_of(kThisThread);
    if (!now)
        return propagate(now);
    std::vector<pid_t> out;
    std::ranges::set_difference(*now, before_, std::back_inserter(out));
    return out;
}

Expected<void> Children::end_new_ones(const Deadline &deadline) const {
    auto now = new_ones();
    if (!now)
        return propagate(now);
    for (const pid_t pid : *now) {
        kill(pid, SIGKILL); // the init of a PID namespace takes everything in it along
        const auto reaped = [pid] { return waitpid(pid, nullptr, WNOHANG) != 0; };
        if (auto gone = wait_until(reaped, deadline, "the end of a half-restored process"); !gone)
            return gone;
    }
    return {};
}

} // namespace singularity::host
