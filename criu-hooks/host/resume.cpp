// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/host/node.hpp"
#include "proc.hpp"
#include "rescue.hpp"

#include <cerrno>
#include <csignal>

namespace singularity::host {

Expected<void> resume(pid_t init) {
    auto node = processes_of(init);
    if (!node)
        return propagate(node);
    if (auto ended = end_tcp_repair(*node); !ended)
        return propagate(ended);
    // Also those that are not stopped yet: SIGCONT takes back a SIGSTOP that is on its way.
    for (const Process &each : *node)
        if (each.state != 'Z' && kill(each.pid, SIGCONT) != 0 && errno != ESRCH)
            return std::unexpected(errno_error("continue", each.title()));
    return {};
}

} // namespace singularity::host
