// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/log.hpp"
#include "criu-hooks/host/staging.hpp"
#include "devices.hpp"
#include "host_node.hpp"
#include "jobs.hpp"

#include <chrono>

#include <fcntl.h>
#include <unistd.h>

namespace singularity::worker {

namespace {

using namespace std::chrono_literals;

constexpr log::Channel kLog("worker");
constexpr auto kMarkPatience = 120s; // for a worker that still undoes what it had begun
constexpr auto kDevicesPatience = 600s;

Expected<void> work(const agent::WorkRecover &job, AgentLink &agent) {
    const node::Room room(job.place.state, job.record.spec.name);
    auto mark = Mark::make(room, Deadline::after(kMarkPatience));
    if (!mark)
        return propagate(mark);
    const Devices devices(job.record, room);
    if (devices.any()) {
        std::error_code error;
        // One at most: what another worker of this node has left was removed by the one that followed.
        for (const auto &entry : std::filesystem::directory_iterator(job.place.staging, error)) {
            auto directory = open_file(entry.path(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
            if (!directory)
                continue;
            // Refused where the clients have never let go, and then nothing is to be done.
            if (auto given = devices.give_back(directory->get(), Deadline::after(kDevicesPatience)); !given)
                kLog.info("{}: {}", job.record.spec.name, given.error().message());
        }
        if (auto shown = devices.show(); !shown)
            return shown;
    }
    if (auto resumed = host::resume(job.record.init.pid); !resumed)
        return resumed;
    if (devices.any())
        devices.await_clients(agent);
    if (auto removed = host::Staging::remove_abandoned(job.place.staging); !removed)
        return propagate(removed);
    return mark->remove();
}

} // namespace

Outcome recover(const agent::WorkRecover &job, AgentLink &agent) {
    if (auto done = work(job, agent); !done)
        return {.report = std::unexpected(std::move(done.error()))};
    agent::ImageReport report;
    report.node = job.record.spec.name;
    return {.report = std::move(report)};
}

} // namespace singularity::worker
