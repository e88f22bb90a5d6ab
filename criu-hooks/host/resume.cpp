// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/host/node.hpp"
#include "interrupted.hpp"
#include "proc.hpp"
#include "rescue.hpp"
#include "session.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>

namespace singularity::host {
namespace {

constexpr std::chrono::seconds kToCallAgain{1}; // in processes that stand still already

// A criu whose caller has been killed undoes what it has begun when it next asks for consent. Debuggers
// inside of the node are none of ours.
Expected<void> await_criu(const std::vector<Process> &node) {
    const auto let_go = [&] {
        return std::ranges::none_of(node, [&](const Process &each) {
            const auto status = status_of(each.pid);
            return status && status->tracer != 0 &&
                   std::ranges::find(node, status->tracer, &Process::pid) == node.end();
        });
    };
    return wait_until(let_go, Deadline::after(kToEnd), "criu to let go of the virtual node");
}

} // namespace

Expected<void> resume(pid_t init) {
    auto node = processes_of(init);
    if (!node)
        return propagate(node);
    if (auto alone = await_criu(*node); !alone)
        return alone;
    if (auto ended = end_tcp_repair(*node); !ended)
        return propagate(ended);
    // Where that is not possible (a frozen process cannot be stopped) calls fail with EINTR, and nothing is
    // lost.
    static_cast<void>(call_again_in(*node, Deadline::after(kToCallAgain)));
    // Also those that are not stopped yet: SIGCONT takes back a SIGSTOP that is on its way.
    for (const Process &each : *node)
        if (each.state != 'Z' && kill(each.pid, SIGCONT) != 0 && errno != ESRCH)
            return std::unexpected(errno_error("continue", each.title()));
    return tidy_up(*node, Deadline::after(kToEnd));
}

} // namespace singularity::host
