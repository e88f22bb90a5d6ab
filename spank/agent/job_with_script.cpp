// SPDX-License-Identifier: GPL-2.0-or-later
// A step that is saved because its batch script is, and both run on. An srun cannot be saved, and what is on
// its way through it neither, so it must end for that: the step is saved and stands still until all of the
// script's steps do; then it ends, and is begun again from there when the script is saved. Until it ends
// nothing is lost: it can run on as if nobody had asked.
#include "job.hpp"
#include "job_plan.hpp"
#include "log.hpp"
#include "member.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;

constexpr auto kCutPatience = 400s; // longer than the script's wrapper has for all of its steps
constexpr auto kLeavePatience = 700s;

} // namespace

bool Job::may_be_cut() const {
    return record_.state() == wire::JobRecord::RUNNING && !has_ended(record_) && !keeper_ && !is_cut_for_;
}

bool Job::is_here() const {
    return std::ranges::all_of(where_, [this](const auto &one) { return one.first == hosts_->own_host(); });
}

void Job::save_with_script(OnCut then) {
    if (!may_be_cut())
        return then(Cut{});
    if (yield_ != Yield::no || on_cut_)
        return then(failure("save", record_.name(), "it is being saved, or Slurm ends it", EBUSY));
    on_cut_ = std::move(then);
    before_cut_ = record_.checkpoint();
    if (auto begun = save(false, false); !begun)
        std::exchange(on_cut_, {})(propagate(begun));
}

// Slurm may have told it to end meanwhile.
void Job::has_been_cut() {
    const auto on_cut = std::exchange(on_cut_, {});
    if (yield_ == Yield::saving) {
        is_saved_ = true;
        on_cut(failure("save", record_.name(), "Slurm ends it", EBUSY));
        return rest();
    }
    is_cut_for_ = Deadline::after(kCutPatience);
    static_cast<void>(write());
    on_cut(Cut{.checkpoint = record_.checkpoint(), .before = before_cut_});
}

std::string Job::end_with_script() {
    if (!is_cut_for_)
        return {};
    auto out = record_.checkpoint();
    end({}, true);
    return out;
}

void Job::go_on_with_script() {
    if (is_cut_for_)
        leave_cut([] {});
}

void Job::leave_cut(std::function<void()> then) {
    is_cut_for_.reset();
    record_.clear_saving();
    static_cast<void>(write());
    auto all = when_all(where_.size(),
                        [self = shared_from_this(), then = std::move(then)](const Expected<void> &outcome) {
                            if (!outcome)
                                kLog.error("{}", outcome.error().message());
                            if (self->runs())
                                then();
                        });
    for (const auto &[host, about] : where_) {
        wire::Envelope request;
        request.mutable_save_job()->set_job(record_.name());
        request.mutable_save_job()->set_step(wire::SaveJob::LET_GO);
        hosts_->ask(host, std::move(request), kLeavePatience,
                    [all](const Expected<wire::Envelope> &reply) { all(outcome_of(reply)); });
    }
}

} // namespace singularity::agent
