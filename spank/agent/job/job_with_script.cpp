// SPDX-License-Identifier: GPL-2.0-or-later
// A step that is saved because its batch script is, and both run on. An srun cannot be saved, and what is on
// its way through it neither, so it must end for that: the step is saved and stands still until all of the
// script's steps do; then it ends, and is begun again from there when the script is saved. Until it ends
// nothing is lost: it can run on as if nobody had asked.
#include "agent/log.hpp"
#include "job.hpp"
#include "job_plan.hpp"
#include "member.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
namespace wire = peers::wire;

constexpr auto kCutPatience = 400s; // longer than the script's wrapper has for all of its steps

} // namespace

bool Job::may_be_cut() const {
    return record_.state() == wire::JobRecord::RUNNING && !has_ended(record_) && !keeper_ && !stands_still();
}

Expected<bool> Job::begin_apart() {
    const auto refuse = [&](std::string why, int code) {
        return failure("begin a step of", record_.name(), std::move(why), code);
    };
    if (!record_.until_srun())
        return refuse("its steps are saved with it", EALREADY);
    if (!runs() || saving_ || yield_ != Yield::no)
        return refuse("it is being saved, or Slurm ends it", EAGAIN);
    const bool may_be_saved = record_.apart() || !record_.checkpoint().empty();
    if (record_.unsavable())
        note({"unsavable="});
    record_.set_apart(true);
    record_.clear_checkpoint();
    record_.clear_periodic();
    record_.clear_unsavable();
    record_.clear_unsavable_by_check();
    next_save_.reset();
    next_check_.reset();
    ++check_;
    if (!write())
        return refuse("its record could not be written", EIO);
    return may_be_saved;
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
    cut_unwanted_ = false;
    before_cut_ = record_.checkpoint();
    if (auto begun = save(false, false); !begun)
        std::exchange(on_cut_, {})(propagate(begun));
}

// Slurm may have told it to end meanwhile. What it goes on from then is another image: this one says that the
// step has run on after it, so that nobody takes it for the last one.
void Job::has_been_cut() {
    const auto on_cut = std::exchange(on_cut_, {});
    is_cut_for_ = Deadline::after(kCutPatience);
    static_cast<void>(write());
    if (yield_ == Yield::no && !cut_unwanted_)
        return on_cut(Cut{.checkpoint = record_.checkpoint(), .before = before_cut_});
    on_cut(failure("save", record_.name(),
                   yield_ == Yield::no ? "its script is not saved any more" : "Slurm ends it", EBUSY));
    leave_cut([self = shared_from_this()] {
        if (self->yield_ == Yield::saving)
            self->save_at_last();
        else if (self->yield_ == Yield::doubting)
            self->go_on_to_end(self->doubt_);
    });
}

// Once Slurm ends it, it is saved once more, or not at all.
std::string Job::end_with_script() {
    if (!is_cut_for_ || yield_ != Yield::no)
        return {};
    auto out = record_.checkpoint();
    end({}, true);
    return out;
}

void Job::go_on_with_script() {
    cut_unwanted_ = true;
    if (is_cut_for_)
        leave_cut([] {});
}

void Job::handle_cut() {
    if (is_cut_for_ && is_cut_for_->expired()) {
        kLog.warning("{}: nobody has said what becomes of it: it runs on", record_.name());
        leave_cut([] {});
    }
    if (const auto leaving = leaving_) // which it may end
        leaving->handle();
}

void Job::leave_cut(std::function<void()> then) {
    after_leaving_.push_back(std::move(then));
    if (leaving_)
        return;
    is_cut_for_.reset();
    // Whatever ends in doubt may go on from it.
    std::string image;
    if (yield_ != Yield::doubting) {
        image = record_.checkpoint();
        record_.set_checkpoint(before_cut_);
    }
    record_.clear_saving();
    static_cast<void>(write());
    std::vector<std::string> hosts;
    for (const auto &[host, about] : where_)
        hosts.push_back(host);
    leaving_ = LetGo::start(*hosts_, record_.name(), hosts, [self = weak_from_this(), image] {
        if (const auto job = self.lock())
            job->has_left_cut(image);
    });
}

// No image of its script names that one.
void Job::has_left_cut(const std::string &image) {
    leaving_.reset();
    hosts_->forget_image({.uid = record_.user().uid(), .step = record_.step()}, image);
    for (const auto &then : std::exchange(after_leaving_, {}))
        if (runs())
            then();
}

} // namespace singularity::agent
