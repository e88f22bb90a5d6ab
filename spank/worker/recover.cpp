// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/host/staging.hpp"
#include "devices.hpp"
#include "host_node.hpp"
#include "jobs.hpp"
#include "log.hpp"

#include <chrono>

namespace singularity::worker {

namespace {

using namespace std::chrono_literals;

constexpr auto kRecoverMarkPatience = 120s;    // for a worker that still undoes what it had begun
constexpr auto kRecoverDevicesPatience = 600s; // a proxy may still be writing its image

Expected<void> work(const agent::WorkRecover &job, AgentLink &agent) {
    const node::Room room(job.place.state, job.record.spec.name);
    auto mark = Mark::make(room, Deadline::after(kRecoverMarkPatience));
    if (!mark)
        return propagate(mark);
    const Devices devices(job.record, room);
    if (devices.any()) {
        if (auto brought = devices.resume(Deadline::after(kRecoverDevicesPatience)); !brought)
            return brought;
        if (auto shown = devices.show(); !shown)
            return shown;
    }
    if (auto resumed = host::resume(job.record.init.pid); !resumed)
        return resumed;
    if (auto attached = devices.await_clients(job.record.init.pid, agent); !attached)
        return attached;
    // It runs: whatever is left over must not end it.
    if (auto removed = host::Staging::remove_abandoned(job.place.staging); !removed)
        kLog.error("{}", removed.error().message());
    if (auto removed = mark->remove(); !removed)
        kLog.error("{}", removed.error().message());
    return {};
}

} // namespace

Outcome recover(const agent::WorkRecover &job, AgentLink &agent) {
    if (auto done = work(job, agent); !done)
        return {.report = std::unexpected(std::move(done.error())), .lost = true};
    agent::ImageReport report;
    report.node = job.record.spec.name;
    return {.report = std::move(report)};
}

} // namespace singularity::worker
