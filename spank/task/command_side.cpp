// SPDX-License-Identifier: GPL-2.0-or-later
#include "command_side.hpp"

#include "agent/protocol/agent_messages.hpp"
#include "variables.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace singularity::task {

namespace {

using namespace std::chrono_literals;

constexpr auto kDoorAgain = 1s;
constexpr auto kApartAgain = 200ms;
constexpr auto kCommandPatience = 20s; // for a command that runs when the rank is to be saved
constexpr auto kStepPatience = 300s;   // for a step that is saved as well; Slurm mostly waits less
constexpr auto kHangUpPatience = 20s;  // for a process that was told to come again
constexpr auto kSignalPatience = 60s;  // for a step to be restored
constexpr auto kStepAgain = 100ms;
constexpr auto kSaveComesWithin = 10s; // when Slurm has told a step to end, if it is to be saved

// The files that a step writes go on as well, where its srun opens them (srun(1), --open-mode).
constexpr std::string_view kAppends = "SLURM_OPEN_MODE=a";

// A script's word for what becomes of it is older than its first srun.
void say_that_it_runs_again(std::vector<std::string> &environment) {
    const auto name = fmt::format("{}=", kOfScriptVariable);
    for (auto &entry : environment)
        if (entry.starts_with(name))
            entry = name + kScriptAgain;
}

// For the step's tasks.
void name_step(std::vector<std::string> &environment, const commands::Run &run) {
    const auto name = fmt::format("{}=", kGoesOnVariable);
    const bool goes_on = !run.checkpoint.empty();
    std::erase_if(environment, [&](const std::string &entry) {
        return entry.starts_with(name) ||
               (goes_on && entry.starts_with(kAppends.substr(0, kAppends.find('=') + 1)));
    });
    auto words = fmt::format("{}{}", name, run.number);
    if (goes_on)
        words += fmt::format(" {}", run.checkpoint);
    if (goes_on && !run.had.empty())
        words += fmt::format(" {}", fmt::join(run.had, ","));
    environment.push_back(std::move(words));
    if (goes_on)
        environment.emplace_back(kAppends);
}

} // namespace

void CommandSide::watch(std::vector<pollfd> &fds) const {
    if (runner_)
        runner_->watch(fds);
}

std::optional<Deadline> CommandSide::next_deadline() const {
    std::optional<Deadline> out = rest_until_;
    for (const auto &one : {door_again_at_, withheld_until_, steps_until_, ask_again_at_, hang_up_until_,
                            apart_again_at_, together_ ? together_->next_deadline() : std::nullopt,
                            runner_ ? runner_->next_deadline() : std::nullopt})
        if (one && (!out || one->when() < out->when()))
            out = one;
    return out;
}

void CommandSide::work() {
    if (door_again_at_ && door_again_at_->expired())
        ask_for_door();
    if (withheld_until_ && withheld_until_->expired()) {
        has_seen_an_end_ = has_seen_an_end_ || (runner_ && runner_->withholds());
        deliver();
    }
    if (runner_)
        runner_->work();
    begin_apart();
    if (together_)
        together_->work();
    if (together_ && together_->resolved() && !rest_until_)
        together_.reset();
    hear();
    look_at_signals();
    look_at_rest();
}

bool CommandSide::waits_for_steps() const {
    const auto running = runner_ ? runner_->running() : std::vector<commands::Runner::Running>();
    return std::ranges::any_of(running, [](const auto &one) {
        return !one.answered && !one.over && commands::ends_with_its_step(one.path);
    });
}

// Who wants the step comes again and again until the answer is there.
void CommandSide::begin_apart() {
    if (apart_again_at_ && apart_again_at_->expired())
        apart_again_at_.reset();
    const auto done = line_.take<agent::Done>(apart_);
    if (!done && done.error().code == EALREADY) {
        steps_are_ = commands::StepsAre::with_rank;
        wants_a_step_ = false;
    } else if (!done) {
        apart_again_at_ = Deadline::after(kApartAgain);
        if (done.error().code != EAGAIN && !std::exchange(complained_of_apart_, true))
            std::cerr << "singularity-task: srun waits: " << done.error().message() << '\n';
    } else if (*done) {
        steps_are_ = commands::StepsAre::apart;
        wants_a_step_ = false;
        steps_.reset();
    }
    if (wants_a_step_ && !apart_ && !apart_again_at_) {
        apart_ = line_.ask(agent::BeginApart{});
        if (!apart_)
            apart_again_at_ = Deadline::after(kApartAgain);
    }
}

// A step none of whose tasks are here is signalled after a time.
void CommandSide::look_at_signals() {
    if (!runner_)
        return;
    if (const auto reply = line_.take<agent::Done>(running_); reply && *reply) {
        runner_->step_runs(signalled_);
        signal_until_.reset();
    }
    const auto waiting = runner_->signalled_steps();
    if (waiting.empty()) {
        ask_again_at_.reset();
        signal_until_.reset();
        return;
    }
    if (running_ || (ask_again_at_ && !ask_again_at_->expired()))
        return;
    if (!signal_until_ || signalled_ != waiting.front())
        signal_until_ = Deadline::after(kSignalPatience);
    signalled_ = waiting.front();
    ask_again_at_ = Deadline::after(kStepAgain);
    if (signal_until_->expired())
        runner_->step_runs(signalled_);
    else
        running_ = line_.ask(agent::StepRuns{.number = signalled_});
}

// A save that had begun is over: who asked for it has gone. Whoever takes its place does not know the door.
void CommandSide::connected(std::shared_ptr<agent::Client> client) {
    line_.connect(std::move(client));
    if (runner_)
        runner_->pause();
    for (auto *const asked : {&door_, &watching_, &resting_, &finding_, &running_, &apart_})
        asked->reset();
    rest_until_.reset();
    steps_until_.reset();
    hang_up_until_.reset();
    if (together_)
        together_->reconnected();
    ask_for_door();
}

void CommandSide::runs() {
    runs_ = true;
    ask_for_door();
}

// Slurm ends the steps that the rank has begun as well, and if it is saved now, it must not have seen that.
void CommandSide::told_to_end() {
    if (withheld_)
        return;
    withhold();
    withheld_until_ = Deadline::after(kSaveComesWithin);
}

void CommandSide::withhold() {
    withheld_ = true;
    if (runner_)
        runner_->withhold();
}

void CommandSide::deliver() {
    withheld_ = false;
    withheld_until_.reset();
    if (runner_)
        runner_->deliver();
}

void CommandSide::end() {
    if (runner_)
        runner_->end();
}

void CommandSide::ask_for_door() {
    door_again_at_.reset();
    if (!runs_ || door_)
        return;
    door_ = line_.ask(agent::OpenDoor{});
    if (!door_)
        door_again_at_ = Deadline::after(kDoorAgain);
}

void CommandSide::hear() {
    if (auto door = line_.take<agent::Door>(door_); !door)
        has_no_door(door.error());
    else if (auto &there = *door; there && there->descriptors.size() == 1)
        open(std::move(*there));
    const auto begins = line_.take<agent::SaveBegins>(watching_);
    if (begins && *begins && runner_) {
        runner_->pause();
        rest_until_ = Deadline::after(kCommandPatience);
        steps_until_.reset();
        const auto &begun = *begins;
        may_save_steps_ = begun && begun->reply.saves && !begun->reply.ends && steps_ && !withheld_;
        if (begun && begun->reply.ends && steps_ && withheld_)
            steps_until_ = Deadline::after(kStepPatience);
    }
    const auto over = line_.take<agent::Done>(resting_);
    if (!over || *over) // that save is over
        ask_for_door();
}

void CommandSide::has_no_door(const Error &why) {
    if (why.code == ENOTSUP)
        return;
    door_again_at_ = Deadline::after(kDoorAgain);
    // EAGAIN: the agent does not know the node yet, or it is being saved.
    if (why.code != EAGAIN && !std::exchange(complained_, true))
        std::cerr << "singularity-task: Slurm's commands do not work here: " << why.message() << '\n';
}

void CommandSide::open(agent::Answered<agent::Door> door) {
    if (!runner_) {
        commands::Setting setting;
        setting.commands.assign(door.reply.commands.begin(), door.reply.commands.end());
        setting.adapt = [this](std::vector<std::string> &environment) {
            if (adapt_)
                adapt_(environment);
            if (is_apart())
                say_that_it_runs_again(environment);
        };
        if (steps_)
            setting.number = name_step;
        setting.steps_are = [this] {
            wants_a_step_ = steps_are_ == commands::StepsAre::unknown;
            return steps_are_;
        };
        runner_.emplace(std::move(setting));
        if (withheld_)
            runner_->withhold();
    }
    runner_->open(std::move(door.descriptors[0]));
    watching_ = line_.ask(agent::WatchSaves{});
}

// A step is not waited for: it may take days. But one that is saved and ends now.
std::string CommandSide::why_not_saved_with(const commands::Runner::Running &one) const {
    const auto name = std::filesystem::path(one.path).filename().native();
    std::string why = "nothing is saved as long as it runs";
    if (goes_on(one) && may_save_steps_)
        why = fmt::format("it has not begun a step within {} seconds", kCommandPatience.count());
    else if (goes_on(one) && !steps_until_)
        why = "it can be saved only when its step ends with that";
    else if (goes_on(one) && steps_until_)
        why = timeout_error(*steps_until_, "the end of its step").message();
    return fmt::format(
        "process {} waits for {}, which runs outside of its virtual node, as all of Slurm's commands do: {}",
        one.stand_in, name.empty() ? "a command" : name, why);
}

void CommandSide::look_at_rest() {
    if (!rest_until_ || !runner_)
        return;
    if (together_ && may_save_steps_) {
        look_at_together();
        return;
    }
    // Of an end that it withholds, it knows first what it means.
    if (together_ && !together_->resolved() && steps_until_ && !steps_until_->expired())
        return;
    std::string trouble;
    bool only_for_now = false;
    bool waits = false;
    bool together = false;
    if (has_seen_an_end_)
        trouble = "Slurm has ended a step that was begun in this one, and the program has seen that";
    for (const auto &one : runner_->running()) {
        if (one.answered)
            continue;
        const bool is_step = commands::ends_with_its_step(one.path);
        if (goes_on(one) && steps_until_ && !steps_until_->expired()) {
            waits = waits || !one.over;
        } else if (is_saved_together(one) && !rest_until_->expired()) {
            waits = waits || !one.began_step || one.over;
            together = true;
        } else if (may_save_steps_ && !is_step && !rest_until_->expired()) {
            waits = true; // before any step is stopped
        } else if (is_step || rest_until_->expired()) {
            only_for_now = goes_on(one) && !steps_until_ && (trouble.empty() || only_for_now);
            trouble = why_not_saved_with(one);
        }
    }
    if (!trouble.empty()) {
        rest(std::move(trouble), only_for_now);
        return;
    }
    if (waits || (steps_until_ && !sends_steps_away(*runner_)))
        return;
    if (together && steps_) {
        together_.emplace(line_, *runner_, *steps_);
        together_->work();
        return;
    }
    const auto &until = steps_until_ ? *steps_until_ : *rest_until_;
    if (runner_->at_rest())
        rest({});
    else if (until.expired())
        rest(timeout_error(until, "one of Slurm's commands to hang up").message());
}

// While both run on.
bool CommandSide::is_saved_together(const commands::Runner::Running &one) const {
    return may_save_steps_ && goes_on(one);
}

void CommandSide::look_at_together() {
    if (!together_ || !runner_)
        return;
    if (together_->resolved() && !hang_up_until_)
        hang_up_until_ = Deadline::after(kHangUpPatience);
    if (!together_->trouble().empty())
        rest(fmt::format("its steps cannot be saved with it: {}", together_->trouble()), true);
    else if (together_->resolved() && runner_->at_rest())
        rest({});
    else if (together_->resolved() && hang_up_until_ && hang_up_until_->expired())
        rest(who_hangs_on(*runner_), true);
}

// One that its user has stopped, say.
std::string CommandSide::who_hangs_on(const commands::Runner &runner) {
    std::vector<pid_t> processes;
    for (const auto &one : runner.running())
        if (one.stand_in != 0)
            processes.push_back(one.stand_in);
    return fmt::format("its steps are saved, but srun in it has not hung up within {} s: is it stopped? "
                       "process {}",
                       kHangUpPatience.count(), fmt::join(processes, ", "));
}

// Whether none waits for the end of a step any more.
bool CommandSide::sends_steps_away(commands::Runner &runner) {
    if (!finding_) {
        sought_ = runner.untold_steps();
        runner.send_away({}); // whoever has no step
        if (!sought_.empty() && steps_)
            finding_ = line_.ask(agent::FindSteps{.numbers = sought_,
                                                  .restarts = steps_->restarts,
                                                  .store = steps_->store,
                                                  .with_script = false});
        return sought_.empty();
    }
    const auto found = line_.take<agent::FoundSteps>(finding_);
    if (!found) {
        rest(found.error().message());
        return false;
    }
    const auto &there = *found;
    if (!there)
        return false;
    std::map<std::uint32_t, commands::SavedStep> saved;
    const auto &[all, inputs] = there->reply;
    for (std::size_t at = 0; at < std::min({sought_.size(), all.size(), inputs.size()}); ++at)
        if (!all[at].empty())
            saved.emplace(sought_[at], commands::SavedStep{.checkpoint = all[at], .read = inputs[at].bytes});
    runner.send_away(saved);
    const auto left = runner.untold_steps();
    const auto of_input = std::ranges::count_if(left, [&](auto number) { return saved.contains(number); });
    if (std::cmp_less(of_input, left.size()))
        rest(fmt::format("srun has ended, and nothing was saved of its step: {} of {} steps",
                         std::ssize(left) - of_input, sought_.size()));
    else if (!left.empty())
        rest(fmt::format("srun has input, and how much of it its step has read is not known, as of tasks on "
                         "other hosts than the script's, or that is not there any more: {} of {} steps",
                         of_input, sought_.size()));
    return left.empty();
}

void CommandSide::rest(std::string trouble, bool only_for_now) {
    rest_until_.reset();
    steps_until_.reset();
    hang_up_until_.reset();
    may_save_steps_ = false;
    resting_ =
        line_.ask(agent::CommandsRest{.trouble = std::move(trouble),
                                      .only_for_now = only_for_now,
                                      .named = runner_ ? runner_->awaited() : std::vector<std::string>()});
}

} // namespace singularity::task
