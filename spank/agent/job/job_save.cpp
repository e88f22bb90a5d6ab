// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_save.hpp"

#include "agent/limits/metrics.hpp"
#include "agent/log.hpp"
#include "agent/step/save_error.hpp"
#include "common/text.hpp"
#include "member.hpp"
#include "proxy/barrier/messages.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <sys/random.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;

constexpr auto kPreparePatience = 660s; // longer than workers have
constexpr auto kBarrierPatience = 60s;  // a rank may be in a kernel, or its program in something else
constexpr auto kRoundPatience = 1000ms;
constexpr auto kHoldPatience = 1300s; // longer than commands and workers have
constexpr auto kStorePatience = 3700s;
constexpr auto kLetGoPatience = 700s;
constexpr auto kMargin = 30s;
// A process that begins to use a device, or ends, just then is an obstacle that is gone at the next attempt.
constexpr int kAttempts = 3;
constexpr auto kBetweenAttempts = 1s;

std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

// Of steps that say and hear no more than that.
void same(const std::string & /*host*/, wire::SaveJob & /*request*/) {}
Expected<void> nothing(const std::string & /*host*/, const wire::SavedJob & /*reply*/) { return {}; }

std::span<const std::byte> bytes_of(const std::string &text) { return std::as_bytes(std::span(text)); }

} // namespace

Expected<std::shared_ptr<JobSave>> JobSave::start(HostAsker &hosts, Plan plan, Owner owner) {
    std::shared_ptr<JobSave> out(new JobSave(hosts, std::move(plan), std::move(owner)));
    if (auto begun = out->begin(); !begun)
        return propagate(begun);
    return out;
}

Expected<std::shared_ptr<JobSave>> JobSave::settle(HostAsker &hosts, Plan plan, Owner owner,
                                                   const std::string &checkpoint) {
    std::shared_ptr<JobSave> out(new JobSave(hosts, std::move(plan), std::move(owner)));
    out->checkpoint_ = checkpoint;
    out->attempt_ = kAttempts;
    if (auto begun = out->look_up(); !begun)
        return propagate(begun);
    return out;
}

void JobSave::drop() {
    over_ = true;
    worker_.reset();
    again_.reset();
    if (const auto letting_go = std::exchange(letting_go_, nullptr))
        letting_go->drop();
}

Expected<void> JobSave::begin() {
    ++attempt_;
    committing_ = false;
    coordinator_.reset();
    where_.clear();
    parts_ = {};
    sums_ = {};
    auto worker = Worker::start(plan_.libraries, plan_.begin.uid, plan_.begin);
    if (!worker)
        return propagate(worker);
    worker_ = std::move(*worker);
    return {};
}

void JobSave::watch(std::vector<pollfd> &fds) const {
    std::vector<int> own;
    if (worker_)
        worker_->watch(own);
    for (const int fd : own)
        fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
}

void JobSave::handle() {
    if (const auto letting_go = letting_go_) // which it may end
        letting_go->handle();
    if (again_ && again_->expired()) {
        again_.reset();
        if (auto begun = begin(); !begun)
            return end(propagate(begun));
    }
    node::Packet packet;
    while (worker_ && !over_) {
        const auto received = worker_->receive(packet);
        if (received == node::Received::nothing)
            return;
        if (received != node::Received::packet)
            return worker_died();
        if (const auto begun = node::decode<WorkBegun>(packet.bytes))
            take_begun(begun->checkpoint);
        else if (auto finished_work = node::decode<WorkFinished>(packet.bytes))
            finished(std::move(finished_work->report));
        else if (const auto failed = node::decode<WorkFailed>(packet.bytes))
            fail({failed->error.doing, failed->error.on, failed->error.why, failed->error.code});
        else if (!node::decode<Progress>(packet.bytes))
            worker_died();
    }
}

void JobSave::take_begun(const std::string &checkpoint) {
    checkpoint_ = checkpoint;
    if (auto known = owner_.on_begun(checkpoint); !known)
        return fail(known.error());
    std::uint64_t number = 0;
    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        return fail(errno_error("number", "a barrier"));
    coordinator_.emplace(number);
    decision_ = {.requests = {}, .otherwise = coordinator_->first()};
    ask_all(
        wire::SaveJob::BEGIN, "preparing", kPreparePatience,
        [this](const std::string & /*host*/, wire::SaveJob &request) {
            request.set_checkpoint(checkpoint_);
            request.set_go_on(plan_.go_on);
            request.set_store(plan_.begin.store);
        },
        nothing,
        [self = shared_from_this()] {
            self->barrier_deadline_ = Deadline::after(kBarrierPatience);
            self->round();
        });
}

void JobSave::ask_all(Step step, std::string_view doing, std::chrono::milliseconds patience, const Fill &fill,
                      const Take &take, const std::function<void()> &then) {
    if (over_)
        return;
    owner_.on_progress({.phase = std::string(doing), .bytes = 0, .total = 0});
    kLog.debug("{}: {}", plan_.begin.job, doing);
    const auto current = [self = shared_from_this(), at = given_up_] {
        return !self->over_ && self->given_up_ == at;
    };
    auto all = when_all(plan_.hosts.size(),
                        [self = shared_from_this(), current, then](const Expected<void> &outcome) {
                            if (!current())
                                return;
                            if (!outcome)
                                return self->fail(outcome.error());
                            then();
                        });
    for (const auto &host : plan_.hosts) {
        wire::Envelope request;
        auto &save = *request.mutable_save_job();
        save.set_job(plan_.begin.job);
        save.set_step(step);
        fill(host, save);
        hosts_->ask(
            host, std::move(request), patience,
            [host, take, all, current, doing = std::string(doing)](const Expected<wire::Envelope> &reply) {
                auto outcome = outcome_of(reply);
                if (outcome && !reply->has_saved_job())
                    outcome = failure("understand", host, "its answer has another form", EPROTO);
                if (!outcome)
                    return all(failure("save the nodes on", quote(host),
                                       fmt::format("while {}: {}", doing, outcome.error().message()),
                                       outcome.error().code));
                all(current() ? take(host, reply->saved_job()) : Expected<void>());
            });
    }
}

void JobSave::round() {
    reports_.clear();
    ask_all(
        wire::SaveJob::ROUND, "stopping ranks", kRoundPatience + kMargin,
        [this](const std::string &host, wire::SaveJob &request) {
            for (const auto &[process, asked] : decision_.requests) {
                const auto found = where_.find(process);
                if (found == where_.end() || found->second != host)
                    continue;
                auto *const out = request.add_requests();
                out->set_high(process.words[0]);
                out->set_low(process.words[1]);
                out->set_text(text_of(barrier::encode(asked)));
            }
            request.set_otherwise(text_of(barrier::encode(decision_.otherwise)));
            request.set_patience_ms(
                static_cast<std::uint32_t>(coordinator_->patience(kRoundPatience).count()));
        },
        [this](const std::string &host, const wire::SavedJob &reply) {
            for (const auto &one : reply.reports()) {
                auto report = barrier::decode_report(bytes_of(one.text()));
                if (!report) // a process that is left out counts as one that has ended
                    return Expected<void>(std::unexpected(report.error()));
                report->process = {.words = {one.high(), one.low()}};
                where_[report->process] = host;
                reports_.push_back(std::move(*report));
            }
            return Expected<void>();
        },
        [self = shared_from_this()] { self->decide(); });
}

void JobSave::decide() {
    auto next = coordinator_->decide(reports_);
    if (!next)
        return fail(next.error());
    if (next->complete) {
        kLog.debug("{}: {} processes stopped between collectives in {} rounds", plan_.begin.job,
                   reports_.size(), coordinator_->round() - 1);
        owner_.on_stopped(barrier::total_of(reports_));
        return hold();
    }
    if (barrier_deadline_.expired()) {
        attempt_ = kAttempts; // the next would wait for the same
        return fail({"stop", "all ranks between two collectives",
                     fmt::format("within {} ms they did not come there: {}", barrier_deadline_.span().count(),
                                 coordinator_->behind()),
                     ETIMEDOUT});
    }
    decision_ = std::move(*next);
    round();
}

void JobSave::hold() {
    ask_all(wire::SaveJob::HOLD, "saving", kHoldPatience, same, nothing, [self = shared_from_this()] {
        self->parts_.outputs = self->owner_.outputs();
        if (!self->plan_.go_on)
            return self->store();
        self->ask_all(wire::SaveJob::RESUME, "resuming", kLetGoPatience, same, nothing,
                      [self] { self->store(); });
    });
}

void JobSave::store() {
    ask_all(
        wire::SaveJob::STORE, "storing", kStorePatience, same,
        [this](const std::string & /*host*/, const wire::SavedJob &reply) {
            parts_.names.insert(parts_.names.end(), reply.parts().begin(), reply.parts().end());
            sums_.processes += reply.processes();
            sums_.host_bytes += reply.host_bytes();
            sums_.stored_bytes += reply.stored_bytes();
            sums_.devices_bytes += reply.devices_bytes();
            sums_.memory_bytes += reply.memory_bytes();
            sums_.device_bytes = smaller_device(sums_.device_bytes, reply.device_bytes());
            sums_.pause_us = std::max(sums_.pause_us, reply.pause_us());
            return Expected<void>();
        },
        [self = shared_from_this()] { self->commit(); });
}

void JobSave::commit() {
    owner_.on_progress({.phase = "committing", .bytes = 0, .total = 0});
    if (!worker_)
        return fail({"commit", checkpoint_, "the process that has begun it has died", ECHILD});
    committing_ = true;
    if (auto told = worker_->tell(parts_); !told)
        worker_died();
}

Expected<void> JobSave::look_up() {
    settling_ = true;
    auto worker = Worker::start(plan_.libraries, plan_.begin.uid,
                                WorkSettleJob{.uid = plan_.begin.uid,
                                              .directory = plan_.begin.directory,
                                              .checkpoint = checkpoint_,
                                              .superseded = plan_.begin.superseded,
                                              .store = plan_.begin.store});
    if (!worker)
        return propagate(worker);
    worker_ = std::move(*worker);
    return {};
}

void JobSave::worker_died() {
    worker_.reset();
    ++counters().workers_died;
    Error died{"save", plan_.begin.job, "the process that makes its checkpoint has died", ECHILD};
    if (!committing_ || settling_)
        return fail(std::move(died));
    if (auto asked = look_up(); !asked)
        fail(asked.error());
}

void JobSave::finished(ImageReport report) {
    worker_.reset();
    if (report.checkpoint.empty())
        return fail({"save", plan_.begin.job,
                     "the process that made its checkpoint had died before it was there", ECANCELED});
    report.node = plan_.begin.job;
    report.processes = sums_.processes;
    report.host_bytes = sums_.host_bytes;
    report.stored_bytes += sums_.stored_bytes;
    report.devices_bytes = sums_.devices_bytes;
    report.memory_bytes = sums_.memory_bytes;
    report.device_bytes = sums_.device_bytes;
    report.pause_us = sums_.pause_us;
    if (!plan_.go_on)
        return end(report);
    let_go([self = shared_from_this(), report] { self->end(report); });
}

void JobSave::fail(Error error) {
    worker_.reset(); // it gives up the checkpoint
    committing_ = false;
    ++given_up_;
    if (settling_ && !plan_.go_on && error.code != ECANCELED) {
        error.code = ENOTRECOVERABLE;
        return end(std::unexpected(std::move(error)));
    }
    let_go([self = shared_from_this(), error] {
        // What cannot be saved now cannot be saved in a moment either.
        if (self->attempt_ >= kAttempts || SaveError::is_unsavable(error.code) ||
            error.code == SaveError::kRankHasFailed ||
            (error.code == SaveError::kStepRuns && self->plan_.go_on))
            return self->end(std::unexpected(error));
        kLog.info("{}: {}; once more", self->plan_.begin.job, error.message());
        self->again_ = Deadline::after(kBetweenAttempts);
    });
}

void JobSave::let_go(std::function<void()> then) {
    letting_go_ = LetGo::start(*hosts_, plan_.begin.job, plan_.hosts,
                               [self = weak_from_this(), then = std::move(then)] {
                                   const auto save = self.lock();
                                   if (!save)
                                       return;
                                   save->letting_go_.reset();
                                   if (!save->over_)
                                       then();
                               });
}

void JobSave::end(Expected<ImageReport> outcome) {
    if (std::exchange(over_, true))
        return;
    worker_.reset();
    owner_.on_end(std::move(outcome));
}

} // namespace singularity::agent
