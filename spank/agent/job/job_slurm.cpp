// SPDX-License-Identifier: GPL-2.0-or-later
// A step whose tasks Slurm has told to end (SIGTERM). Why, only slurmctld knows: a job that is to run again
// is saved first; the ranks of any other are told as well. Slurm kills whatever is left after KillWait, or
// the grace time.
#include "agent/limits/metrics.hpp"
#include "agent/log.hpp"
#include "common/published_places.hpp"
#include "job.hpp"
#include "job_plan.hpp"
#include "member.hpp"
#include "peers/handshake.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <sys/wait.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;

constexpr auto kScriptPatience = 3s;
constexpr auto kBetweenLooks = 200ms;
constexpr std::uint32_t kTries = 3; // to go on from one checkpoint, where Slurm runs it

} // namespace

void Job::told_to_end() {
    if (yield_ != Yield::no || record_.state() != wire::JobRecord::RUNNING || has_ended(record_))
        return;
    auto asked = about_slurm_job(&SlurmRequest::about);
    if (!asked)
        return save_in_doubt(asked.error().message());
    yield_ = Yield::asking;
    slurm_request_ = std::move(*asked);
}

Expected<OwnedJob> Job::slurm_job() const {
    auto job = job_of_step(record_.step());
    if (!job)
        return propagate(job);
    return OwnedJob{.id = *job, .uid = record_.user().uid()};
}

Expected<SlurmRequest> Job::about_slurm_job(Expected<SlurmRequest> (*what)(const Libraries &,
                                                                           const OwnedJob &)) const {
    auto job = slurm_job();
    if (!job)
        return propagate(job);
    return what(setting_->libraries, *job);
}

void Job::handle_slurm() {
    if (look_again_ && look_again_->expired()) {
        look_again_.reset();
        look_at_script();
    }
    if (!slurm_request_)
        return;
    auto answer = slurm_request_->take();
    if (answer && !*answer)
        return;
    slurm_request_.reset();
    if (yield_ == Yield::asking)
        slurm_has_told(answer ? parse_slurm_job(**answer) : propagate(answer));
    else if (yield_ == Yield::requeueing) {
        if (!answer) // somebody has cancelled it meanwhile, perhaps
            kLog.error("{}: {}", record_.name(), answer.error().message());
        yield_ = Yield::resting;
        look_at_script();
    }
}

void Job::slurm_has_told(const Expected<SlurmJob> &about) {
    // Its image is none that its next run could go on from: it says that the step has run on.
    if (stands_still())
        return leave_cut([self = shared_from_this(), about] { self->slurm_has_told(about); });
    if (!about)
        return save_in_doubt(about.error().message());
    if (!goes_on_later(*about)) {
        // It ends with its job: whoever requeues that wants it to go on.
        using Fate = SlurmJob::Fate;
        cut_short_ = cut_short_ || about->fate == Fate::ended || about->fate == Fate::terminated;
        return is_saved_ ? end({}) : go_on_to_end({});
    }
    if (record_.apart()) { // its wrapper ends it when its steps have been saved
        kLog.info("{}: Slurm runs its job again later, and the script from its first line", record_.name());
        yield_ = Yield::resting;
        return;
    }
    kLog.info("{}: Slurm runs its job again later: it is saved", record_.name());
    requeue_ = about->fate == SlurmJob::Fate::timeout;
    // In its grace time Slurm requeues a job whose script ends. It would do so once more, after the next run,
    // if it were told to.
    stop_script_ = about->fate == SlurmJob::Fate::preempted;
    batch_host_ = peers::short_name(about->batch_host);
    yield_ = Yield::saving;
    if (is_saved_)
        rest();
    else if (!saving_) // else when that one has ended
        save_at_last();
}

void Job::save_at_last() {
    if (auto begun = save(false, false); !begun)
        could_not_be_saved(begun.error());
}

// It ends as if it did not run again, since it may not; if it does, it goes on from here.
void Job::save_in_doubt(const std::string &trouble) {
    if (stands_still())
        return leave_cut([self = shared_from_this(), trouble] { self->save_in_doubt(trouble); });
    if (!record_.of_script() || record_.apart() || is_saved_)
        return go_on_to_end(trouble);
    yield_ = Yield::doubting;
    doubt_ = trouble;
    if (saving_) // when that one has ended
        return;
    if (auto begun = save(true, false); !begun) {
        kLog.error("{}", begun.error().message());
        go_on_to_end(trouble);
    }
}

// Its ranks hear what their tasks have heard.
void Job::go_on_to_end(const std::string &trouble) {
    yield_ = Yield::no;
    if (is_saved_) // there is nobody who could hear it
        return end(trouble);
    if (!trouble.empty()) {
        kLog.error("{}: its ranks are told to end, since nobody knows why Slurm ends them: {}",
                   record_.name(), trouble);
        cut_short_ = true;
    }
    wire::Envelope request;
    request.mutable_signal_job()->set_job(record_.name());
    request.mutable_signal_job()->set_held(true);
    for (const auto &[host, about] : where_)
        hosts_->ask(host, request, setting_->patience, [host](const Expected<wire::Envelope> &reply) {
            if (const auto done = outcome_of(reply); !done)
                kLog.error("{}: {}", host, done.error().message());
        });
}

void Job::tell_what_is_lost(const std::string &why) {
    const auto words =
        fmt::format("{}; {}", why,
                    record_.checkpoint().empty()
                        ? std::string("there is no earlier checkpoint: it will begin anew")
                        : fmt::format("what it has done since {} is lost", record_.checkpoint()));
    kLog.error("{}: {}", record_.name(), words);
    tell_user(words);
}

// In the step's output, which is where they look: by a task of this host, or else of the first one.
void Job::tell_user(const std::string &words) {
    if (record_.step().empty() || where_.empty())
        return;
    const auto own = where_.find(hosts_->own_host());
    const auto &host = own == where_.end() ? where_.begin()->first : own->first;
    wire::Envelope request;
    request.mutable_tell_user()->set_job(record_.name());
    request.mutable_tell_user()->set_words(words);
    hosts_->ask(host, std::move(request), setting_->patience,
                [name = record_.name()](const Expected<wire::Envelope> &reply) {
                    if (const auto done = outcome_of(reply); !done)
                        kLog.error("{}: its user is not told: {}", name, done.error().message());
                });
}

// One that could go on from a checkpoint does, as if the host had been lost. Where it has none, or Slurm ends
// it, its ranks say what they make of it.
void Job::lose_device(const std::string &host, const std::string &trouble) {
    if (!record_.of_script() || record_.checkpoint().empty() || yield_ != Yield::no || stands_still()) {
        kLog.warning("{}: {}: it runs on without the device", record_.name(), trouble);
        return follow_host(host);
    }
    kLog.error("{}: {}", record_.name(), trouble);
    if (record_.tries() < kTries)
        return lose(trouble);
    lose(trouble,
         why_held(fmt::format("has lost a device {} times since its checkpoint {}; the last time: {}",
                              record_.tries(), record_.checkpoint(), trouble)));
}

void Job::lose(const std::string &trouble, std::string hold) {
    if (record_.of_script() && !lost_) {
        lost_ = true;
        Rerun rerun{.key = {.uid = record_.user().uid(), .step = record_.step()},
                    .restarts = record_.restarts(),
                    .hold = std::move(hold)};
        if (!record_.restore().empty()) { // its work is in the store, and stays there
            kLog.error("{}: it cannot go on from {}: {}", record_.name(), record_.restore(), trouble);
            if (record_.tries() >= kTries)
                rerun.hold =
                    why_held(fmt::format("could not go on from its checkpoint {} times; the last time: {}",
                                         record_.tries(), trouble));
        } else if (!record_.apart() && (yield_ != Yield::saving || is_saved_)) { // else that is told
            tell_what_is_lost(trouble);
        }
        hosts_->run_again(std::move(rerun));
    }
    end(trouble);
}

void Job::could_not_be_saved(const Error &why) {
    tell_what_is_lost(why.message());
    cut_short_ = true;
    go_on_to_end({});
}

// It stands still. Its tasks must not end before nothing of the batch script runs on because of that.
void Job::rest() {
    yield_ = Yield::resting;
    if (!requeue_)
        return look_at_script();
    auto asked = about_slurm_job(&SlurmRequest::requeue);
    if (!asked) {
        kLog.error("{}: {}", record_.name(), asked.error().message());
        return look_at_script();
    }
    yield_ = Yield::requeueing;
    slurm_request_ = std::move(*asked);
}

void Job::look_at_script() {
    wire::Envelope request;
    auto &about = *request.mutable_script_rests();
    about.set_uid(record_.user().uid());
    about.set_step(record_.step());
    about.set_stop(stop_script_);
    hosts_->ask(batch_host_, std::move(request), kScriptPatience,
                [self = shared_from_this()](const Expected<wire::Envelope> &reply) {
                    if (self->record_.state() != wire::JobRecord::RUNNING)
                        return;
                    if (outcome_of(reply))
                        self->end({}, true);
                    else // Slurm kills the tasks before long, if nobody answers
                        self->look_again_ = Deadline::after(kBetweenLooks);
                });
}

void Job::checkpoint_for_comment() {
    if (saving_ || stands_still() || yield_ != Yield::no ||
        !save_turn_.has_come(Budget::workers, record_.user().uid(), record_.name()))
        return; // the comment is looked at again
    comment_asks_ = true;
    if (auto begun = save(true, false); !begun) {
        kLog.error("{}", begun.error().message());
        answer_comment(
            record_.apart()
                ? std::string("not saved: no srun runs, and the script runs again from its first line")
                : fmt::format("not saved: {} is {}", record_.step(), to_string(record_.state())));
    }
}

// For who asks Slurm about its job.
void Job::note(std::vector<std::string> words) const {
    const auto job = slurm_job();
    if (!job || !record_.of_script())
        return;
    setting_->tell_slurm(*job, "note", std::move(words));
}

// Also of a job without a script, which has no other words.
void Job::note_places(bool are_there) const {
    const auto job = slurm_job();
    if (!job || record_.published().empty())
        return;
    std::vector<PublishedPlace> places;
    for (const auto &one : record_.published())
        for (const auto &node : record_.nodes())
            if (node.number() == one.node())
                places.push_back({.step = record_.step().substr(record_.step().find('.') + 1),
                                  .port = one.port(),
                                  .node = node.hostname().empty() ? node.name() : node.hostname(),
                                  .host = node.host(),
                                  .at = one.at()});
    setting_->tell_slurm(*job, "note", {are_there ? word_of_places(places) : word_without_places(places)});
}

void Job::answer_comment(std::string_view words) {
    const auto job = slurm_job();
    if (!std::exchange(comment_asks_, false) || !job)
        return;
    setting_->tell_slurm(*job, kAnswerComment, {std::string(words)});
}

// A batch script that is run again does not run twice what has ended; so its end is in the store before the
// script hears of it. What Slurm has killed, or what we have told to end where it could go on, has not ended.
void Job::keep_end() {
    const auto was_killed = [](const auto &one) {
        return WIFSIGNALED(one.status()) &&
               (WTERMSIG(one.status()) == SIGKILL || WTERMSIG(one.status()) == SIGTERM);
    };
    const bool killed = std::ranges::any_of(record_.ends(), was_killed);
    if (killed && yield_ == Yield::saving && !is_saved_)
        tell_what_is_lost("Slurm has not waited until it was saved");
    const bool runs_again = record_.apart() && yield_ != Yield::no; // a script, from its first line
    if (!record_.of_script() || cut_short_ || is_saved_ || killed || runs_again)
        return end({});
    if (keeper_)
        return;
    const auto record = record_.SerializeAsString();
    // A script that is saved itself may go on from where its step was before.
    const bool replaces = record_.name() == job_name_of_step(record_.user().uid(), record_.step());
    auto worker = Worker::start(setting_->libraries, record_.user().uid(),
                                WorkKeepEnd{.job = record_.name(),
                                            .uid = record_.user().uid(),
                                            .gid = record_.user().gid(),
                                            .record = {record.begin(), record.end()},
                                            .store = record_.store(),
                                            .replaces = replaces});
    if (!worker) {
        if (worker.error().code != Worker::kNotBuilt)
            kLog.error("{}: its end is not kept: {}", record_.name(), worker.error().message());
        return end({});
    }
    keeper_ = std::move(*worker);
}

void Job::handle_keeper() {
    node::Packet packet;
    while (keeper_) {
        const auto received = keeper_->receive(packet);
        if (received == node::Received::nothing)
            return;
        const auto failed = node::decode<WorkFailed>(packet.bytes);
        if (received != node::Received::packet) {
            ++counters().workers_died;
            kLog.error("{}: its end is not kept: the process that was to do it has died", record_.name());
        } else if (failed) {
            kLog.error("{}: its end is not kept: {}", record_.name(), failed->error.why);
        } else if (!node::decode<WorkFinished>(packet.bytes)) {
            continue;
        }
        return end({});
    }
}

} // namespace singularity::agent
