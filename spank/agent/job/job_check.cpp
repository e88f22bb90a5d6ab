// SPDX-License-Identifier: GPL-2.0-or-later
// Whether a step of Slurm's could be saved: asked soon after its tasks have begun to run, so that its user
// does not hear of it when it is to make room; and again, less and less often, as long as it could not be.
// Checkpoints know better, so what is asked beside one does not count.
#include "agent/log.hpp"
#include "agent/step/save_error.hpp"
#include "common/text.hpp"
#include "job.hpp"
#include "job_plan.hpp"
#include "member.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;

constexpr auto kJobCheckPatience = 90s; // longer than commands and nodes have
constexpr std::chrono::milliseconds kLongestCheckPause = 30min;
constexpr unsigned kCheckTries = 5;

} // namespace

void Job::check_later() {
    checks_failed_ = 0;
    check_pause_ = setting_->check_after;
    if (check_pause_ != 0ms && !record_.step().empty() && !record_.apart())
        next_check_ = Deadline::after(check_pause_);
}

void Job::check() {
    next_check_.reset();
    if (record_.state() != wire::JobRecord::RUNNING || yield_ != Yield::no || has_ended(record_))
        return;
    // If the answers do not count.
    next_check_ = Deadline::after(kJobCheckPatience + check_pause_);
    if (saving_)
        return;
    wire::Envelope request;
    request.mutable_check_job()->set_job(record_.name());
    const auto findings = std::make_shared<Findings>(Findings{.left = where_.size()});
    ++check_;
    for (const auto &[host, about] : where_)
        hosts_->ask(host, request, kJobCheckPatience,
                    [self = shared_from_this(), host, findings,
                     number = check_](const Expected<wire::Envelope> &reply) {
                        if (number == self->check_ && self->yield_ == Yield::no && self->runs())
                            self->checked(host, reply, *findings);
                    });
}

void Job::checked(const std::string &host, const Expected<wire::Envelope> &reply, Findings &findings) {
    auto outcome = outcome_of(reply);
    if (outcome && !reply->has_checked_job())
        outcome = failure("understand", host, "its answer has another form", EPROTO);
    if (!outcome) {
        kLog.debug("{}: whether it could be saved is not known of {}: {}", record_.name(), host,
                   outcome.error().message());
        findings.failed = true;
    } else if (!reply->checked_job().obstacle().empty()) {
        findings.obstacle = true;
        const Error why{"save the nodes on", quote(host), reply->checked_job().obstacle(),
                        SaveError::kUnsavable};
        if (!record_.unsavable()) {
            kLog.warning("{}: {}", record_.name(), why.message());
            record_.set_unsavable_by_check(true);
        }
        cannot_be_saved(why);
        static_cast<void>(write());
    }
    if (--findings.left != 0)
        return;
    next_check_.reset();
    checks_failed_ = findings.failed ? checks_failed_ + 1 : 0;
    if (findings.obstacle) {
        check_pause_ = std::min(2 * check_pause_, kLongestCheckPause);
        next_check_ = Deadline::after(check_pause_);
    } else if (findings.failed && checks_failed_ < kCheckTries) {
        next_check_ = Deadline::after(check_pause_);
    } else if (!findings.failed && record_.unsavable_by_check()) {
        kLog.info("{}: nothing is in the way of a checkpoint any more", record_.name());
        record_.clear_unsavable();
        record_.clear_unsavable_by_check();
        static_cast<void>(write());
        note({"unsavable="});
    }
}

} // namespace singularity::agent
