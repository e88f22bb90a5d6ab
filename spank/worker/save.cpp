// SPDX-License-Identifier: GPL-2.0-or-later
// A checkpoint. The order makes the cut: a client that has let go of its proxy neither computes nor waits for
// it, so the devices' images and the node's, which is dumped after them, are of one moment, whatever the rest
// of the program does in between.
#include "common/log.hpp"
#include "criu-hooks/host/staging.hpp"
#include "criu-hooks/host/transfer.hpp"
#include "device_store.hpp"
#include "devices.hpp"
#include "host_node.hpp"
#include "jobs.hpp"
#include "node/process.hpp"

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::worker {

namespace {

using namespace std::chrono_literals;
using Clock = Deadline::Clock;

constexpr log::Channel kLog("worker");
constexpr auto kDevicesPatience = 600s;
constexpr auto kDumpPatience = 600s;
constexpr auto kStorePatience = 3600s;
constexpr auto kEndPatience = 10s; // for the agent to do what takes it no time
constexpr auto kMarkPatience = 10s;
constexpr auto kHangUpPatience = 10s; // the init belongs to the user

std::uint64_t microseconds(Clock::duration span) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(span).count());
}

std::string user_name(uid_t uid) {
    const passwd *const entry = ::getpwuid(uid); // NOLINT(concurrency-mt-unsafe): before any thread
    return entry != nullptr ? entry->pw_name : std::to_string(uid);
}

class Saving {
  public:
    Saving(const agent::WorkSave &job, AgentLink &agent)
        : job_(job), agent_(agent), room_(job.place.state, job.record.spec.name),
          devices_(job.record, room_) {}

    Outcome run() {
        const auto begin = Clock::now();
        auto report = work();
        if (!report)
            undo();
        else
            report->total_us = microseconds(Clock::now() - begin);
        const bool told = report && !job_.go_on;
        if (told)
            hand_over(*report);
        staging_.reset();
        if (mark_)
            if (auto removed = mark_->remove(); !removed)
                kLog.error("{}", removed.error().message());
        return {.report = std::move(report), .lost = lost_, .told = told};
    }

  private:
    Expected<agent::ImageReport> work();
    Expected<void> cut_in_time(agent::ImageReport &report);
    Expected<void> cut(agent::ImageReport &report);
    Expected<void> resume();
    Expected<store::Writer> begin_checkpoint();
    Expected<void> store_images(store::Writer &writer);
    void hand_over(const agent::ImageReport &report);
    void undo();

    const agent::WorkSave &job_;
    AgentLink &agent_;
    node::Room room_;
    Devices devices_;
    std::optional<Mark> mark_;
    std::unique_ptr<host::Staging> staging_; // empty: nothing of the node has been touched
    std::unique_ptr<store::Store> store_;
    Clock::time_point begun_; // the cut that counts
    bool touched_ = false;    // the node may not run as it did
    bool lost_ = false;
};

Expected<agent::ImageReport> Saving::work() {
    // What can fail by itself comes before the program notices anything.
    auto writer = begin_checkpoint();
    if (!writer)
        return propagate(writer);
    auto mark = Mark::make(room_, Deadline::after(kMarkPatience));
    if (!mark)
        return propagate(mark);
    mark_.emplace(std::move(*mark));
    if (auto alone = await_hang_up(job_.record, Deadline::after(kHangUpPatience)); !alone)
        return propagate(alone);
    agent::ImageReport report;
    report.node = job_.record.spec.name;
    if (auto done = cut_in_time(report); !done)
        return propagate(done);
    if (job_.go_on) {
        if (auto done = resume(); !done)
            return propagate(done);
        report.pause_us = microseconds(Clock::now() - begun_);
        touched_ = false;
        if (auto told = agent_.tell(agent::WorkRunning{}); !told)
            return propagate(told);
    }
    if (auto done = store_images(*writer); !done)
        return propagate(done);
    if (auto wanted = agent_.still_wanted(); !wanted)
        return propagate(wanted);
    agent_.progress("committing");
    auto manifest = writer->commit();
    if (!manifest)
        return propagate(manifest);
    if (!job_.go_on)
        report.pause_us = microseconds(Clock::now() - begun_);
    report.checkpoint = manifest->id;
    report.stored_bytes = manifest->sizes.added;
    if (!job_.superseded.empty())
        if (auto removed = store_->remove(job_.record.spec.uid, job_.superseded); !removed)
            kLog.warning("{}", removed.error().message());
    return report;
}

Expected<store::Writer> Saving::begin_checkpoint() {
    auto opened = open_store(true);
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
    if (auto done = writer->describe(record.spec.name, {}, {{"record", node::encoded(record)}}); !done)
        return propagate(done);
    return writer;
}

// A process that begins to use a device, or ends, just then is an obstacle that is gone at the next attempt.
Expected<void> Saving::cut_in_time(agent::ImageReport &report) {
    constexpr int kAttempts = 3;
    for (int attempt = 1;; ++attempt) {
        auto staging = host::Staging::make(job_.place.staging);
        if (!staging)
            return propagate(staging);
        staging_ = std::make_unique<host::Staging>(std::move(*staging));
        if (devices_.any())
            if (auto prepared =
                    devices_.prepare(staging_->directory(), agent_, Deadline::after(kDevicesPatience));
                !prepared)
                return prepared;
        begun_ = Clock::now();
        auto done = cut(report);
        if (done || lost_ || !devices_.any() || attempt == kAttempts || !agent_.still_wanted())
            return done;
        kLog.info("{}: {}; once more", job_.record.spec.name, done.error().message());
        if (auto resumed = resume(); !resumed)
            return resumed;
        touched_ = false;
        staging_.reset();
    }
}

Expected<void> Saving::cut(agent::ImageReport &report) {
    touched_ = true;
    if (devices_.any()) {
        // Its end opens gates: those of clients that have been let go of do not hear it.
        auto barrier = devices_.stop_ranks(agent_);
        if (!barrier)
            return propagate(barrier);
        if (auto hidden = devices_.hide(); !hidden)
            return hidden;
        auto saved = devices_.save(staging_->directory(), agent_, Deadline::after(kDevicesPatience));
        if (!saved)
            return propagate(saved);
        report.devices_bytes = *saved;
    }
    auto outside = outside_of(job_.record);
    if (!outside)
        return propagate(outside);
    // The host image has a directory of its own: all of that is restored by CRIU.
    const auto images = staging_->path() / "host";
    if (mkdir(images.c_str(), 0700) != 0)
        return std::unexpected(errno_error("make", images.native()));
    auto directory = open_file(images, O_RDONLY | O_DIRECTORY);
    if (!directory)
        return propagate(directory);
    const auto context = context_of(job_.record.spec, agent_, "saving processes");
    auto dumped = host::dump(
        context,
        {.init = job_.record.init.pid,
         .images = directory->get(),
         .descriptors = std::move(outside->descriptors),
         .mounts = mounts_in(job_.record, room_),
         .afterwards = job_.go_on && !devices_.any() ? host::Afterwards::kRun : host::Afterwards::kStop,
         .local_directories = {}},
        Deadline::after(kDumpPatience));
    if (!dumped) {
        lost_ = dumped.error().code == host::kNodeLost;
        return propagate(dumped);
    }
    report.host_bytes = dumped->bytes;
    report.processes = dumped->processes;
    // The agent writes no more of it until the node runs again.
    return copy_logs(room_.path(), images);
}

// Devices first: a program that runs finds them.
Expected<void> Saving::resume() {
    if (devices_.any()) {
        if (auto brought = devices_.resume(Deadline::after(kDevicesPatience)); !brought)
            return brought;
        if (auto shown = devices_.show(); !shown)
            return shown;
    }
    if (auto resumed = host::resume(job_.record.init.pid); !resumed)
        return resumed;
    return devices_.await_clients(job_.record.init.pid, agent_);
}

Expected<void> Saving::store_images(store::Writer &writer) {
    const auto &name = job_.record.spec.name;
    const auto deadline = Deadline::after(kStorePatience);
    for (std::uint32_t device = 0; device < devices_.devices(); ++device) {
        const auto file = Devices::file(devices_.proxy_of(device));
        const UniqueFd stream(openat(staging_->directory(), file.c_str(), O_RDONLY | O_CLOEXEC));
        if (!stream)
            return std::unexpected(errno_error("open", file));
        auto stored = store_device(stream.get(), device, writer, name, deadline, [&](std::uint64_t) {
            agent_.progress("storing devices", writer.progress().given);
            return agent_.still_wanted();
        });
        if (!stored)
            return stored;
    }
    agent_.progress("storing processes", writer.progress().given);
    auto directory = open_file(staging_->path() / "host", O_RDONLY | O_DIRECTORY);
    if (!directory)
        return propagate(directory);
    return host::save(directory->get(), writer, name);
}

// The agent ends the node now. If it has died instead, nobody does, and nobody else would let the node go on.
void Saving::hand_over(const agent::ImageReport &report) {
    const auto init = node::hold(job_.record.init);
    auto told = agent_.tell(agent::WorkFinished{.report = report});
    if (told && !init)
        return;
    if (told)
        told = wait_until([&] { return node::has_ended(*init); }, Deadline::after(kEndPatience),
                          "the agent to end the node");
    if (!told) {
        kLog.error("{}: {}; it goes on", job_.record.spec.name, told.error().message());
        undo();
    }
}

// A node that cannot go on as it was must not go on at all: the agent ends it.
void Saving::undo() {
    if (!touched_ || lost_)
        return;
    if (auto resumed = resume(); !resumed) {
        kLog.error("{}: {}: it is of no use any more", job_.record.spec.name, resumed.error().message());
        lost_ = true;
    }
}

} // namespace

Outcome save(const agent::WorkSave &job, AgentLink &agent) { return Saving(job, agent).run(); }

} // namespace singularity::worker
