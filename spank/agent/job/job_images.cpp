// SPDX-License-Identifier: GPL-2.0-or-later
// Checkpoints of a job, and the end of its restore.
#include "agent/limits/metrics.hpp"
#include "agent/log.hpp"
#include "agent/slurm/slurm_cgroup.hpp"
#include "agent/step/save_error.hpp"
#include "agent/worker/worker.hpp"
#include "job.hpp"

#include <chrono>
#include <ctime>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;

constexpr auto kUntilTurn = 5s; // a checkpoint that nobody has asked for waits for others
constexpr const char *kNumberOfScript = "4294967291"; // SLURM_BATCH_SCRIPT of slurm.h

Work work_of(bool periodic) { return periodic ? Work::periodic : Work::asked; }

double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// What its ranks have on devices, what one device has, and what its programs have, in MiB: by it is known on
// how few GPUs the job still fits.
std::string memory_word(const ImageReport &report) {
    constexpr unsigned kOfMebibyte = 20; // bits
    return report.device_bytes == 0
               ? std::string("memory=")
               : fmt::format("memory={}:{}:{}", report.memory_bytes >> kOfMebibyte,
                             report.device_bytes >> kOfMebibyte, report.host_bytes >> kOfMebibyte);
}
double seconds(std::uint64_t microseconds) { return static_cast<double>(microseconds) / 1e6; }

} // namespace

void Job::checkpoint(bool go_on, const Responder &responder) {
    if (!go_on && !record_.step().empty())
        return responder.refuse(
            {"save", record_.name(),
             fmt::format("it is step {} of Slurm's: scontrol requeue saves it and ends it, and "
                         "--continue saves it while it runs on",
                         record_.step()),
             EINVAL});
    if (auto room = Worker::room_for_one_more(record_.user().uid(), "save", record_.name()); !room)
        return responder.refuse(room.error());
    if (auto begun = save(go_on, false); begun)
        imager_ = responder;
    else
        responder.refuse(begun.error());
}

Expected<void> Job::save(bool go_on, bool periodic) {
    if (record_.state() != wire::JobRecord::RUNNING)
        return failure("save", record_.name(), fmt::format("it is {}", to_string(record_.state())), EAGAIN);
    if (saving_ || stands_still())
        return failure("save", record_.name(), "it is being saved already", EBUSY);
    if (record_.apart())
        return failure(
            "save", record_.name(),
            "the batch script has begun an srun, so it runs again from its first line, and only its "
            "steps are saved",
            EPERM);
    auto saving = JobSave::start(*hosts_, save_plan(go_on, periodic), save_owner(go_on, periodic));
    saved_as_ = work_of(periodic);
    if (!saving) {
        counters().failed(saved_as_);
        return propagate(saving);
    }
    saving_ = std::move(*saving);
    next_save_.reset();
    ++check_; // its nodes' checks are given up
    return {};
}

JobSave::Plan Job::save_plan(bool go_on, bool periodic) const {
    auto stored = record_;
    // Its step may run on after that, unless its script's image names it.
    stored.set_saving_goes_on(go_on || on_cut_);
    const auto record = stored.SerializeAsString();
    JobSave::Plan plan{.libraries = setting_->libraries,
                       .begin = {.job = record_.name(),
                                 .uid = record_.user().uid(),
                                 .gid = record_.user().gid(),
                                 .directory = directory(),
                                 .parent = record_.checkpoint(),
                                 .periodic = periodic,
                                 .superseded = periodic ? record_.periodic() : std::string(),
                                 .record = {record.begin(), record.end()},
                                 .store = record_.store()},
                       .hosts = {},
                       .go_on = go_on};
    for (const auto &[host, about] : where_)
        plan.hosts.push_back(host);
    return plan;
}

JobSave::Owner Job::save_owner(bool go_on, bool periodic) {
    return {.on_begun = [self = weak_from_this(), go_on,
                         periodic](const std::string &checkpoint) -> Expected<void> {
                const auto job = self.lock();
                if (!job)
                    return failure("save", "a job", "it has ended", ECHILD);
                job->record_.set_saving(checkpoint);
                // An agent that comes again does not know whether its script was saved.
                job->record_.set_saving_goes_on(go_on || job->on_cut_);
                job->record_.set_saving_is_periodic(periodic);
                if (!job->write())
                    return failure("save", job->record_.name(), "its record could not be written", EIO);
                return {};
            },
            .on_stopped =
                [self = weak_from_this()](const barrier::Total &total) {
                    if (const auto job = self.lock())
                        job->last_stop_ = {.issued = total, .when = std::time(nullptr)};
                },
            .outputs =
                [self = weak_from_this()] {
                    std::vector<std::uint64_t> out;
                    if (const auto job = self.lock())
                        for (const auto &rank : job->ranks_)
                            out.push_back(rank.output.end());
                    return out;
                },
            .on_progress =
                [self = weak_from_this()](const Progress &news) {
                    if (const auto job = self.lock(); job && job->imager_)
                        job->imager_->tell(news);
                },
            .on_end =
                [self = weak_from_this(), go_on, periodic](const Expected<ImageReport> &outcome) {
                    if (const auto job = self.lock())
                        job->saved(outcome, go_on, periodic);
                }};
}

void Job::saved(const Expected<ImageReport> &outcome, bool go_on, bool periodic) {
    saving_.reset();
    const auto checkpoint = record_.saving();
    record_.clear_saving();
    const int code = outcome ? 0 : outcome.error().code;
    if (outcome) {
        record_.set_checkpoint(outcome->checkpoint);
        record_.clear_tries();
        if (periodic)
            record_.set_periodic(outcome->checkpoint);
        record_.clear_unsavable();
    }
    if (outcome || code == SaveError::kUnsavable) { // no check knows better
        record_.clear_unsavable_by_check();
        next_check_.reset();
    } else if (code == SaveError::kWaits && !record_.unsavable()) {
        record_.set_unsavable_by_check(true);
        check_later();
    }
    const auto on_cut = outcome ? OnCut() : std::exchange(on_cut_, {});
    if (!outcome) {
        counters().failed(saved_as_);
        kLog.error("{}", outcome.error().message());
        if (on_cut && code == SaveError::kRankHasFailed) // so it ends by itself
            on_cut(Cut{});
        else if (on_cut)
            on_cut(std::unexpected(outcome.error()));
        if (code == SaveError::kStepRuns && (comment_asks_ || imager_))
            tell_user(outcome.error().message());
        else if (code == SaveError::kStepRuns && periodic && !std::exchange(said_step_runs_, true))
            tell_user(fmt::format(
                "no checkpoint is made now: {}. It is tried again when the next one is due; "
                "should this node die before, the script {}",
                outcome.error().message(),
                record_.checkpoint().empty() ? std::string("begins anew")
                                             : fmt::format("goes on from {}", record_.checkpoint())));
        answer_comment(
            SaveError::is_unsavable(code) || code == SaveError::kStepRuns
                ? std::string("not saved: the job's output says why")
                : fmt::format("not saved: the node agent's log on {} says why", hosts_->own_host()));
        if (const auto imager = std::exchange(imager_, std::nullopt))
            imager->refuse(outcome.error());
        if (code == ENOTRECOVERABLE)
            return end(outcome.error().message());
        if (SaveError::is_unsavable(code))
            cannot_be_saved(outcome.error());
        static_cast<void>(write());
        if (yield_ == Yield::saving)
            return go_on ? save_at_last() : could_not_be_saved(outcome.error());
        if (yield_ == Yield::doubting)
            return go_on_to_end(doubt_);
        return save_again_later();
    }
    counters().succeeded(saved_as_, *outcome);
    kLog.info("{}: saved in {}: {:.1f} MiB of the host, {:.1f} MiB of devices, {:.1f} MiB new in the store; "
              "{:.2f} s, stood still for {:.2f} s",
              record_.name(), outcome->checkpoint, mebibytes(outcome->host_bytes),
              mebibytes(outcome->devices_bytes), mebibytes(outcome->stored_bytes), seconds(outcome->total_us),
              seconds(outcome->pause_us));
    if (on_cut_) // its script's counts
        note({work_done()});
    else
        note({"unsavable=", "checkpoints=+1", fmt::format("saved={}", std::time(nullptr)), work_done()});
    // A script's own devices say nothing of its steps'.
    if (!is_script(record_.step()))
        note({memory_word(*outcome)});
    answer_comment(fmt::format("saved as {}", outcome->checkpoint));
    // What the next agent finds is a job that is still to be looked after as a saved one.
    if (!go_on && !record_.step().empty()) {
        record_.set_saving(checkpoint);
        if (on_cut_)
            return has_been_cut();
        is_saved_ = true;
        return yield_ == Yield::saving ? rest() : told_to_end();
    }
    if (go_on && is_script(record_.step()))
        hosts_->script_saved({.uid = record_.user().uid(), .step = record_.step()});
    report_ = outcome.value();
    // In one record that it is saved and that it ends: the next agent would follow nodes that stand still.
    if (!go_on)
        return end(fmt::format("it was saved in {}", outcome->checkpoint));
    static_cast<void>(write());
    answer_imager();
    if (yield_ == Yield::saving)
        return save_at_last();
    if (yield_ == Yield::doubting)
        return go_on_to_end(doubt_);
    save_again_later();
}

// It stays so until the program lets go of what no image can hold. The planner looks at the note. The user is
// told once, and if the job ends, of what is lost instead.
void Job::cannot_be_saved(const Error &why) {
    note({"unsavable=yes"});
    if (record_.unsavable() || (yield_ != Yield::no && yield_ != Yield::asking))
        return;
    record_.set_unsavable(true);
    if (!record_.of_script())
        return tell_user(why.message());
    tell_user(fmt::format(
        "{}. Until that has changed the job is neither moved nor resized, and if it is requeued it {}",
        why.message(),
        record_.checkpoint().empty() ? std::string("begins anew")
                                     : fmt::format("goes on from {}", record_.checkpoint())));
}

// For who compares how fast it is on how many GPUs: of two such notes of one step with the same lines, the
// operations and the time between them.
std::string Job::work_done() const {
    // A script's is Slurm's own number for it.
    const auto step =
        is_script(record_.step()) ? kNumberOfScript : record_.step().substr(record_.step().find('.') + 1);
    const auto &[issued, when] = last_stop_;
    return issued.operations == 0
               ? std::string("work=")
               : fmt::format("work={}:{}:{:x}:{}", step, issued.operations, issued.lines, when);
}

// An earlier agent has died while it made a checkpoint. What the nodes are to do depends on whether it
// exists.
void Job::settle() {
    if (record_.saving().empty())
        return;
    const bool go_on = record_.saving_goes_on();
    const bool periodic = record_.saving_is_periodic();
    auto saving =
        JobSave::settle(*hosts_, save_plan(go_on, periodic), save_owner(go_on, periodic), record_.saving());
    saved_as_ = work_of(periodic);
    if (saving)
        saving_ = std::move(*saving);
    else
        end(saving.error().message());
}

// Between the end of one and the begin of the next.
void Job::save_again_later() {
    if (record_.every() != 0 && !record_.apart() && record_.state() == wire::JobRecord::RUNNING)
        next_save_ = Deadline::after(std::chrono::seconds(record_.every()));
}

void Job::save_periodically() {
    next_save_.reset();
    if (saving_ || stands_still())
        return;
    if (!save_turn_.has_come(Budget::workers, record_.user().uid(), record_.name())) {
        next_save_ = Deadline::after(kUntilTurn);
        return;
    }
    if (auto begun = save(true, true); !begun) {
        kLog.warning("{}", begun.error().message());
        save_again_later();
    }
}

void Job::has_been_restored() {
    ImageReport report;
    report.node = record_.name();
    report.checkpoint = record_.restore();
    report.total_us = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Deadline::Clock::now() - began_).count());
    counters().succeeded(Work::restore, report);
    kLog.info("{}: restored from {} in {:.2f} s", record_.name(), report.checkpoint,
              seconds(report.total_us));
    record_.clear_restore();
    if (!enter(wire::JobRecord::RUNNING))
        return;
    report_ = report;
    answer_imager();
    note({fmt::format("ranks={}", ranks()), fmt::format("resumed={}", std::time(nullptr)), "unsavable="});
    note_places();
    follow_all();
}

// One that is to end hears of it at its end, and one that was to be restored why it is not.
void Job::answer_imager() {
    const auto imager = std::exchange(imager_, std::nullopt);
    const auto report = std::exchange(report_, std::nullopt);
    if (!imager)
        return;
    if (report) {
        Imaged answer{.report = *report, .task = 0, .tied = record_.tied(), .job = true, .read = {}};
        for (const auto &rank : ranks_)
            answer.read.push_back(rank.output.end());
        imager->tell(answer);
    } else
        imager->refuse({"save or restore", record_.name(),
                        record_.trouble().empty() ? "all of its ranks have ended" : record_.trouble(),
                        ECHILD});
}

} // namespace singularity::agent
