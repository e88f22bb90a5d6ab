// SPDX-License-Identifier: GPL-2.0-or-later
#include "steps_save.hpp"

#include "agent/protocol/agent_messages.hpp"

#include <algorithm>
#include <chrono>
#include <ranges>
#include <utility>

#include <fmt/format.h>

namespace singularity::task {

namespace {

using namespace std::chrono_literals;

constexpr auto kLoseAgain = 60s;
constexpr const char *kInputIsGone =
    "srun has input, and so much of it has passed that it could not all be sent again";

} // namespace

StepsSave::StepsSave(AgentLine &line, commands::Runner &runner, const ScriptSteps &steps,
                     const Patience &patience)
    : line_(&line), runner_(&runner), steps_(&steps), patience_(patience),
      until_(Deadline::after(patience.all)), run_until_(Deadline::after(patience.run)) {
    for (const auto &one : runner.running())
        if (!one.answered && one.may_go_on) {
            of_.emplace(one.number, About());
            runner.hold_end(one.number);
        }
}

std::optional<StepsSave::Running> StepsSave::look(std::uint32_t number) const {
    for (auto &one : runner_->running())
        if (one.number == number && !one.answered)
            return std::move(one);
    return std::nullopt;
}

bool StepsSave::is_over(std::uint32_t number) const {
    const auto one = look(number);
    return one && one->over;
}

void StepsSave::look_again(std::chrono::milliseconds pause) { again_ = Deadline::after(pause); }

void StepsSave::reconnected() {
    for (auto *const asked : {&looking_, &saving_, &ending_, &finding_, &letting_go_})
        asked->reset();
    again_ = Deadline::after(patience_.again);
    if (phase_ != Phase::resolving)
        give_up("the node agent was restarted while the steps were saved");
}

// Its end is as that of any other again.
void StepsSave::settle(std::uint32_t number) {
    runner_->tell_end(number);
    of_.erase(number);
}

// Those that stand still run on. Of one that was told to end nobody knows whether it has, before it does.
void StepsSave::give_up(std::string why) {
    if (trouble_.empty())
        trouble_ = std::move(why);
    if (phase_ == Phase::saving || phase_ == Phase::ending)
        for (const auto &[number, about] : of_)
            let_go_.push_back(number);
    phase_ = Phase::resolving;
    for (const auto &[number, about] : std::map(of_))
        if (!about.may_end_so)
            settle(number);
    let_go_until_ = Deadline::after(patience_.let_go);
    again_.reset();
    let_go();
}

// One that does not hear it stands still for some minutes more.
void StepsSave::let_go() {
    const auto reply = line_->take<agent::SavedSteps>(letting_go_);
    if (!reply)
        look_again(patience_.find_again);
    else if (*reply)
        let_go_.clear();
    if (let_go_until_ && let_go_until_->expired())
        let_go_.clear();
    if (let_go_.empty() || letting_go_ || again_)
        return;
    letting_go_ = line_->ask(agent::SaveSteps{.verb = agent::StepsVerb::go_on,
                                              .numbers = let_go_,
                                              .hosts = steps_->hosts,
                                              .restarts = steps_->restarts});
    if (!letting_go_)
        look_again(patience_.again);
}

std::optional<Deadline> StepsSave::next_deadline() const {
    auto out = again_;
    const auto consider = [&](const Deadline &other) {
        if (!out || other.when() < out->when())
            out = other;
    };
    if (trouble_.empty())
        consider(until_);
    if (!let_go_.empty() && let_go_until_)
        consider(*let_go_until_);
    return out;
}

// Empty: it is not.
std::string StepsSave::late() const {
    if (phase_ == Phase::resolving || !until_.expired())
        return {};
    return timeout_error(until_, phase_ == Phase::ending ? "all steps of the script to end"
                                                         : "all steps of the script to be saved")
        .message();
}

void StepsSave::work() {
    if (again_ && again_->expired())
        again_.reset();
    // Whose stand-in was killed.
    std::erase_if(of_, [this](const auto &one) { return !look(one.first); });
    if (auto why = late(); !why.empty())
        give_up(std::move(why));
    if (phase_ == Phase::looking)
        look_for();
    if (phase_ == Phase::saving)
        save();
    if (phase_ == Phase::ending)
        end();
    if (phase_ == Phase::resolving)
        resolve();
    if (!let_go_.empty())
        let_go();
}

bool StepsSave::take(Asked &asked,
                     const std::function<void(std::uint32_t, About &, const agent::SavedStep &)> &each) {
    const auto reply = line_->take<agent::SavedSteps>(asked);
    if (!reply) {
        give_up(reply.error().message());
        return false;
    }
    const auto &there = *reply;
    if (!there)
        return false;
    const auto &steps = there->reply.steps;
    for (std::size_t at = 0; at < std::min(steps.size(), asked_about_.size()); ++at)
        if (const auto one = of_.find(asked_about_[at]); one != of_.end())
            each(one->first, one->second, steps[at]);
    return true;
}

void StepsSave::ask(Asked &asked, agent::StepsVerb verb) {
    asked = line_->ask(agent::SaveSteps{
        .verb = verb, .numbers = asked_about_, .hosts = steps_->hosts, .restarts = steps_->restarts});
    if (!asked)
        look_again(patience_.again);
}

// Empty: nothing.
std::string StepsSave::why_not(const Running &one, bool here) {
    if (one.input == commands::Input::nothing)
        return {};
    if (!here)
        return "srun has input, and how much of it its step has read is not known, as of tasks on other "
               "hosts "
               "than the script's";
    if (one.kept_from != 0)
        return kInputIsGone;
    return {};
}

// Before any of them is stopped. Some may be about to begin, or to end.
void StepsSave::look_for() {
    std::string trouble;
    if (take(looking_, [&](std::uint32_t number, About &about, const agent::SavedStep &step) {
            about.runs = step.there;
            if (const auto one = look(number); one && step.there && trouble.empty())
                trouble = why_not(*one, step.here);
        }))
        look_again(patience_.again);
    if (!trouble.empty()) {
        give_up(std::move(trouble));
        return;
    }
    if (looking_ || phase_ != Phase::looking)
        return;
    asked_about_.clear();
    for (const auto &[number, about] : std::map(of_)) {
        if (is_over(number))
            settle(number); // by itself
        else if (!about.runs)
            asked_about_.push_back(number);
    }
    if (asked_about_.empty()) {
        phase_ = Phase::saving;
        again_.reset();
        return;
    }
    if (run_until_.expired()) {
        give_up(fmt::format("srun runs a step that is not elastic, or that does not run after {} s",
                            std::chrono::duration_cast<std::chrono::seconds>(patience_.run).count()));
        return;
    }
    if (!again_)
        ask(looking_, agent::StepsVerb::look);
}

// Some may end by themselves just then.
void StepsSave::save() {
    if (take(saving_, [](std::uint32_t /*number*/, About &about, const agent::SavedStep &step) {
            about.checkpoint = step.checkpoint;
        }))
        look_again(patience_.again);
    if (saving_ || phase_ != Phase::saving)
        return;
    asked_about_.clear();
    for (const auto &[number, about] : std::map(of_)) {
        if (!about.checkpoint.empty())
            continue;
        if (is_over(number))
            settle(number);
        else
            asked_about_.push_back(number);
    }
    if (asked_about_.empty()) {
        phase_ = Phase::ending;
        again_.reset();
        return;
    }
    if (!again_)
        ask(saving_, agent::StepsVerb::save);
}

// How much each has read is known when it has ended, and then it is too late.
std::string StepsSave::input_that_is_gone() const {
    const bool gone = std::ranges::any_of(of_, [this](const auto &one) {
        const auto running = look(one.first);
        return running && running->input != commands::Input::nothing && running->kept_from != 0;
    });
    return gone ? kInputIsGone : "";
}

void StepsSave::end() {
    const auto take_end = [this](std::uint32_t number, const About & /*about*/,
                                 const agent::SavedStep &step) {
        if (step.there)
            return;
        trouble_ = "a step that was saved with the script has run on, or has ended by itself";
        settle(number);
    };
    if (take(ending_, take_end) || of_.empty())
        phase_ = Phase::resolving;
    if (ending_ || phase_ != Phase::ending)
        return;
    if (auto why = input_that_is_gone(); !why.empty()) { // more has passed before they stood still
        give_up(std::move(why));
        return;
    }
    asked_about_.clear();
    for (auto &[number, about] : of_) {
        asked_about_.push_back(number);
        about.may_end_so = true;
    }
    ask(ending_, agent::StepsVerb::end);
    if (!ending_)
        give_up("the node agent is away");
}

// Whether it has ended because it was saved, its newest checkpoint says: one that has ended by itself has
// left another, which says so, before srun knew.
void StepsSave::resolve() {
    take_found();
    look_at_unclear();
    if (trouble_.empty() && until_.expired())
        trouble_ = timeout_error(until_, "srun to end with its step").message();
    if (finding_ || looking_ || of_.empty() || again_)
        return;
    asked_about_.clear();
    for (const auto &[number, about] : of_)
        if (is_over(number))
            asked_about_.push_back(number);
    if (asked_about_.empty() && !trouble_.empty()) {
        ask_about_unclear();
        return;
    }
    if (asked_about_.empty() || (trouble_.empty() && asked_about_.size() < of_.size()))
        return;
    finding_ = line_->ask(agent::FindSteps{
        .numbers = asked_about_, .restarts = steps_->restarts, .store = steps_->store, .with_script = true});
    if (!finding_)
        look_again(patience_.find_again);
}

// Of those that were told to end by an agent that has died: one that runs was not.
void StepsSave::ask_about_unclear() {
    for (const auto &[number, about] : of_)
        asked_about_.push_back(number);
    if (!asked_about_.empty())
        ask(looking_, agent::StepsVerb::look);
}

void StepsSave::look_at_unclear() {
    if (phase_ == Phase::resolving &&
        take(looking_, [this](std::uint32_t number, const About & /*about*/, const agent::SavedStep &step) {
            if (step.there)
                settle(number);
        }))
        look_again(patience_.find_again);
}

// An agent was restarted between the end of the step and now, and knows no more what was read. Its srun
// cannot go on, nor may the script hear of its end.
void StepsSave::lose() {
    trouble_ = "how much srun had read of its input is not known any more: the job is run again";
    look_again(kLoseAgain);
    static_cast<void>(line_->ask(agent::SaveSteps{.verb = agent::StepsVerb::lose,
                                                  .numbers = {},
                                                  .hosts = steps_->hosts,
                                                  .restarts = steps_->restarts}));
}

void StepsSave::take_found() {
    const auto reply = line_->take<agent::FoundSteps>(finding_);
    if (!reply) {
        look_again(patience_.find_again);
        if (trouble_.empty())
            trouble_ = reply.error().message();
        return;
    }
    const auto &there = *reply;
    if (!there)
        return;
    const auto &[found, inputs] = there->reply;
    for (std::size_t at = 0; at < std::min({found.size(), inputs.size(), asked_about_.size()}); ++at) {
        const auto one = of_.find(asked_about_[at]);
        if (one == of_.end())
            continue;
        if (found[at] != one->second.checkpoint) {
            settle(one->first);
            continue;
        }
        if (runner_->send_back(one->first, {.checkpoint = found[at], .read = inputs[at].bytes}))
            of_.erase(one);
        else
            lose();
    }
}

} // namespace singularity::task
