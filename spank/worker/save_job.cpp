// SPDX-License-Identifier: GPL-2.0-or-later
// The checkpoint of a job as a whole: begun before its nodes make their parts, committed with all of them.
#include "job_output.hpp"
#include "jobs.hpp"
#include "log.hpp"
#include "saving.hpp"

#include <chrono>

#include <fmt/format.h>

namespace singularity::worker {

namespace {

using namespace std::chrono_literals;
using Clock = Deadline::Clock;

constexpr auto kPartsPatience = 2h;
constexpr auto kJobMarkPatience = 120s; // for one whose agent has died
constexpr const char *kMark = "worker";

Expected<Mark> mark_of(const std::string &directory, const std::string &job) {
    return Mark::make(std::filesystem::path(directory) / kMark, job, Deadline::after(kJobMarkPatience));
}

Expected<agent::ImageReport> work(const agent::WorkSaveJob &job, AgentLink &agent) {
    const auto begin = Clock::now();
    auto mark = mark_of(job.directory, job.job);
    if (!mark)
        return propagate(mark);
    auto opened = open_store(job.store, true);
    if (!opened)
        return propagate(opened);
    store::Attributes attributes{{kJob, std::string(job.record.begin(), job.record.end())}};
    if (job.periodic)
        attributes.emplace_back(kPeriodic, "yes");
    auto writer = opened->begin({.job = job.job,
                                 .uid = job.uid,
                                 .gid = job.gid,
                                 .user = user_name(job.uid),
                                 .tier = {},
                                 .parent = job.parent,
                                 .attributes = std::move(attributes)});
    if (!writer)
        return propagate(writer);
    if (auto told = agent.tell(agent::WorkBegun{.checkpoint = writer->id()}); !told)
        return propagate(told);
    auto packet = agent.receive(Deadline::after(kPartsPatience));
    if (!packet)
        return propagate(packet);
    const auto parts = node::decode<agent::WorkParts>(packet->bytes);
    if (!parts)
        return failure("understand", "the agent", "it says something else", EPROTO);
    for (const auto &name : parts->names)
        if (auto taken = writer->take_part(name); !taken)
            return propagate(taken);
    if (auto kept = store_outputs(job.directory, parts->outputs, *writer, job.job); !kept)
        return propagate(kept);
    if (auto wanted = agent.still_wanted(); !wanted)
        return propagate(wanted);
    auto manifest = writer->commit();
    if (!manifest)
        return propagate(manifest);
    if (!job.superseded.empty())
        if (auto removed = opened->remove(job.uid, job.superseded); !removed)
            kLog.warning("{}", removed.error().message());
    if (auto removed = mark->remove(); !removed)
        kLog.error("{}", removed.error().message());
    agent::ImageReport report;
    report.node = job.job;
    report.checkpoint = manifest->id;
    report.stored_bytes = manifest->sizes.added;
    report.total_us = microseconds(Clock::now() - begin);
    return report;
}

Expected<agent::ImageReport> look(const agent::WorkSettleJob &job) {
    auto mark = mark_of(job.directory, "the job");
    if (!mark)
        return propagate(mark);
    auto opened = open_store(job.store, false);
    if (!opened)
        return propagate(opened);
    auto manifest = opened->manifest(job.uid, job.checkpoint);
    if (!manifest && manifest.error().code != ENOENT)
        return propagate(manifest);
    agent::ImageReport report;
    if (manifest)
        report.checkpoint = manifest->id;
    if (manifest && !job.superseded.empty())
        if (auto removed = opened->remove(job.uid, job.superseded);
            !removed && removed.error().code != ENOENT)
            kLog.warning("{}", removed.error().message());
    if (auto removed = mark->remove(); !removed)
        kLog.error("{}", removed.error().message());
    return report;
}

} // namespace

Outcome save_job(const agent::WorkSaveJob &job, AgentLink &agent) {
    auto report = work(job, agent);
    // Who has given it up knows.
    const bool told = !report && !agent.still_wanted();
    return {.report = std::move(report), .told = told};
}

Outcome settle_job(const agent::WorkSettleJob &job, AgentLink & /*agent*/) { return {.report = look(job)}; }

} // namespace singularity::worker
