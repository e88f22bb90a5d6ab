// SPDX-License-Identifier: GPL-2.0-or-later
#include "command_side.hpp"

#include "agent/agent_messages.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <utility>

#include <fmt/format.h>

namespace singularity::task {

namespace {

using namespace std::chrono_literals;

constexpr auto kDoorAgain = 1s;
constexpr auto kCommandPatience = 20s; // for a command that runs when the rank is to be saved
constexpr auto kSaveComesWithin = 10s; // when Slurm has told a step to end, if it is to be saved

} // namespace

void CommandSide::watch(std::vector<pollfd> &fds) const {
    if (runner_)
        runner_->watch(fds);
}

std::optional<Deadline> CommandSide::next_deadline() const {
    std::optional<Deadline> out = rest_until_;
    for (const auto &one :
         {door_again_at_, withheld_until_, runner_ ? runner_->next_deadline() : std::nullopt})
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
    hear();
    look_at_rest();
}

// A save that had begun is over: who asked for it has gone. Whoever takes its place does not know the door.
void CommandSide::connected(std::shared_ptr<agent::Client> client) {
    line_.connect(std::move(client));
    if (runner_)
        runner_->pause();
    for (auto *const asked : {&door_, &watching_, &resting_})
        asked->reset();
    rest_until_.reset();
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
        setting.adapt = adapt_;
        runner_.emplace(std::move(setting));
        if (withheld_)
            runner_->withhold();
    }
    runner_->open(std::move(door.descriptors[0]));
    watching_ = line_.ask(agent::WatchSaves{});
}

// A step is not waited for: it may take days.
void CommandSide::look_at_rest() {
    if (!rest_until_ || !runner_)
        return;
    std::string trouble;
    if (has_seen_an_end_)
        trouble = "Slurm has ended a step that was begun in this one, and the program has seen that";
    for (const auto &one : runner_->running()) {
        const auto name = std::filesystem::path(one.path).filename().native();
        const bool is_step =
            std::ranges::find(commands::kStepCommands, name) != commands::kStepCommands.end();
        if (!one.answered && (is_step || rest_until_->expired()))
            trouble =
                fmt::format("process {} waits for {}, which runs outside of its virtual node, as all of "
                            "Slurm's commands do: nothing is saved as long as it runs",
                            one.stand_in, name.empty() ? "a command" : name);
    }
    if (trouble.empty() && !runner_->at_rest()) {
        if (!rest_until_->expired())
            return;
        trouble = timeout_error(*rest_until_, "one of Slurm's commands to hang up").message();
    }
    rest_until_.reset();
    resting_ = line_.ask(agent::CommandsRest{.trouble = std::move(trouble)});
}

} // namespace singularity::task
