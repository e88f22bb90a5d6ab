// SPDX-License-Identifier: GPL-2.0-or-later
// A checkpoint of a node that is a job of its own.
#include "jobs.hpp"
#include "log.hpp"
#include "node/process.hpp"
#include "saving.hpp"

#include <chrono>

namespace singularity::worker {

namespace {

using namespace std::chrono_literals;
using Clock = Deadline::Clock;

constexpr auto kEndPatience = 10s; // for the agent to do what takes it no time
// Attempts that fail at once are cheap, and a program that starts and ends processes all the time is in the
// way of many: at least so many, and then as long as they have not taken so much time.
constexpr int kAttempts = 3;
constexpr auto kAttemptsTime = 5s;

class Alone {
  public:
    Alone(const agent::WorkSave &job, AgentLink &agent) : job_(job), agent_(agent), saving_(job, agent) {}

    Outcome run() {
        const auto begin = Clock::now();
        auto report = work();
        if (!report)
            saving_.undo();
        else
            report->total_us = microseconds(Clock::now() - begin);
        const bool told = report && !job_.go_on;
        if (told)
            hand_over(*report);
        saving_.end();
        return {.report = std::move(report), .lost = saving_.lost(), .told = told};
    }

  private:
    Expected<agent::ImageReport> work();
    Expected<void> cut_in_time(agent::ImageReport &report);
    Expected<void> cut(agent::ImageReport &report);
    Expected<store::Writer> begin_checkpoint();
    void hand_over(const agent::ImageReport &report);

    const agent::WorkSave &job_;
    AgentLink &agent_;
    Saving saving_;
    std::unique_ptr<store::Store> store_;
};

Expected<agent::ImageReport> Alone::work() {
    // What can fail by itself comes before the program notices anything.
    auto writer = begin_checkpoint();
    if (!writer)
        return propagate(writer);
    if (auto begun = saving_.begin(); !begun)
        return propagate(begun);
    agent::ImageReport report;
    report.node = job_.record.spec.name;
    if (auto done = cut_in_time(report); !done)
        return propagate(done);
    if (job_.go_on) {
        if (auto done = saving_.resume(); !done)
            return propagate(done);
        report.pause_us = microseconds(saving_.pause());
        if (auto told = agent_.tell(agent::WorkRunning{}); !told)
            return propagate(told);
    }
    if (auto done = saving_.store_images(*writer); !done)
        return propagate(done);
    if (auto wanted = agent_.still_wanted(); !wanted)
        return propagate(wanted);
    agent_.progress("committing");
    auto manifest = writer->commit();
    if (!manifest)
        return propagate(manifest);
    if (!job_.go_on)
        report.pause_us = microseconds(saving_.pause());
    report.checkpoint = manifest->id;
    report.stored_bytes = manifest->sizes.added;
    if (!job_.superseded.empty())
        if (auto removed = store_->remove(job_.record.spec.uid, job_.superseded); !removed)
            kLog.warning("{}", removed.error().message());
    return report;
}

Expected<store::Writer> Alone::begin_checkpoint() {
    auto opened = open_store(job_.store, true);
    if (!opened)
        return propagate(opened);
    store_ = std::make_unique<store::Store>(std::move(*opened));
    const auto &record = job_.record;
    auto writer = store_->begin(
        {.job = record.spec.name,
         .uid = record.spec.uid,
         .gid = record.spec.gid,
         .user = user_name(record.spec.uid),
         .tier = {},
         .parent = record.checkpoint,
         .attributes = job_.periodic ? store::Attributes{{kPeriodic, "yes"}} : store::Attributes{}});
    if (!writer)
        return propagate(writer);
    if (auto done = saving_.describe(*writer); !done)
        return propagate(done);
    return writer;
}

// A process that begins to use a device, or ends, just then is an obstacle that is gone at the next attempt.
Expected<void> Alone::cut_in_time(agent::ImageReport &report) {
    const auto time = Deadline::after(kAttemptsTime);
    for (int attempt = 1;; ++attempt) {
        if (auto prepared = saving_.prepare(); !prepared)
            return prepared;
        auto done = cut(report);
        if (done || saving_.lost() || !saving_.has_devices() || !agent_.still_wanted() ||
            (attempt >= kAttempts && time.expired()))
            return done;
        kLog.info("{}: {}; once more", job_.record.spec.name, done.error().message());
        if (auto resumed = saving_.resume(); !resumed)
            return resumed;
    }
}

Expected<void> Alone::cut(agent::ImageReport &report) {
    if (auto stopped = saving_.stop_ranks(); !stopped)
        return stopped;
    return saving_.cut(report);
}

// The agent ends the node now. If it has died instead, nobody does, and nobody else would let the node go on.
void Alone::hand_over(const agent::ImageReport &report) {
    const auto init = node::hold(job_.record.init);
    auto told = agent_.tell(agent::WorkFinished{.report = report});
    if (told && !init)
        return;
    if (told)
        told = wait_until([&] { return node::has_ended(*init); }, Deadline::after(kEndPatience),
                          "the agent to end the node");
    if (!told) {
        kLog.error("{}: {}; it goes on", job_.record.spec.name, told.error().message());
        saving_.undo();
    }
}

} // namespace

Outcome save(const agent::WorkSave &job, AgentLink &agent) { return Alone(job, agent).run(); }

} // namespace singularity::worker
