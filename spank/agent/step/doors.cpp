// SPDX-License-Identifier: GPL-2.0-or-later
#include "doors.hpp"

#include "agent/log.hpp"
#include "common/text.hpp"
#include "save_error.hpp"

#include <algorithm>
#include <cerrno>
#include <ranges>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>

namespace singularity::agent {

namespace {

constexpr int kBacklog = 128;
constexpr std::size_t kWordsLimit = 500; // of a wrapper, which is a user's process

} // namespace

Doors::Keeper *Doors::find(const void *who) {
    std::erase_if(keepers_, [](const Keeper &one) { return one.wrapper.left(); });
    const auto found =
        std::ranges::find_if(keepers_, [&](const Keeper &one) { return one.wrapper.who == who; });
    return found == keepers_.end() ? nullptr : &*found;
}

// The wrapper, who has it still, gets nobody new by it.
void Doors::close(Keeper &keeper) {
    if (keeper.socket)
        shutdown(keeper.socket.get(), SHUT_RDWR);
    keeper.socket.reset();
}

bool Doors::all_rest() const {
    return std::ranges::all_of(keepers_, [](const Keeper &one) { return one.resting.has_value(); });
}

// One of those that have not answered, of its image.
bool Doors::names_steps() const {
    return !ends_ && std::ranges::any_of(
                         keepers_, [this](const Keeper &one) { return !one.resting && begins(one).saves; });
}

Expected<int> Doors::open(Wrapper wrapper, const std::vector<std::filesystem::path> &paths,
                          const SocketOwner &owner) {
    if (!wanted_by_.empty())
        return failure("open a door for", "Slurm's commands", "they rest, because the step is being saved",
                       EAGAIN);
    const auto &first = paths.front();
    auto socket = listen_in_node(first.parent_path(), first.filename(), kBacklog, owner);
    if (!socket)
        return propagate(socket);
    for (const auto &other : paths | std::views::drop(1))
        if (auto shared = share_in_node(first, other); !shared)
            return propagate(shared);
    Keeper *keeper = find(wrapper.who);
    if (keeper == nullptr) {
        keepers_.push_back({.wrapper = std::move(wrapper), .socket = {}, .watcher = {}, .resting = {}});
        keeper = &keepers_.back();
    }
    close(*keeper);
    keeper->socket = *std::move(socket);
    return keeper->socket.get();
}

void Doors::watch(const void *who, bool steps_too, const Responder &responder) {
    Keeper *const keeper = find(who);
    if (keeper == nullptr)
        return responder.refuse({"look after", "Slurm's commands", "this wrapper serves none", EINVAL});
    keeper->steps_too = steps_too;
    if (wanted_by_.empty())
        keeper->watcher = responder;
    else
        responder.tell(begins(*keeper));
}

void Doors::rest_of(const void *who, const CommandsRest &rest, const Responder &responder) {
    Keeper *const keeper = find(who);
    if (keeper == nullptr)
        return responder.refuse({"look after", "Slurm's commands", "this wrapper serves none", EINVAL});
    keeper->resting = responder;
    if (wanted_by_.empty())
        return go_on();
    if (!rest.trouble.empty() && !waiting_.empty())
        return settle(failure("save", step_, escaped(rest.trouble.substr(0, kWordsLimit)),
                              rest.only_for_now ? SaveError::kStepRuns : SaveError::kWaits));
    look();
}

void Doors::rest(For what, Then then, bool ends) {
    wanted_by_.insert(what);
    waiting_.emplace_back(what, std::move(then));
    until_ = Deadline::after(ends ? patience_.last : patience_.rest);
    ends_ = ends;
    for (Keeper &keeper : keepers_) {
        close(keeper);
        if (const auto watcher = std::exchange(keeper.watcher, std::nullopt))
            watcher->tell(begins(keeper));
    }
    look();
}

void Doors::wait_longer() {
    if (until_)
        until_ = Deadline::after(patience_.last);
}

void Doors::let_go(For what) {
    if (wanted_by_.erase(what) == 0)
        return;
    std::vector<Then> dropped;
    for (auto &[wanted_for, then] : waiting_)
        if (wanted_for == what)
            dropped.push_back(std::move(then));
    std::erase_if(waiting_, [what](const auto &one) { return one.first == what; });
    if (waiting_.empty())
        until_.reset();
    if (wanted_by_.empty())
        go_on();
    for (const auto &then : dropped)
        then(failure("wait for", "Slurm's commands", "nobody wants their rest any more", ECANCELED));
}

// Those serve none until they have a door again.
void Doors::go_on() {
    for (const Keeper &keeper : keepers_)
        if (keeper.resting)
            keeper.resting->tell(Done{});
    std::erase_if(keepers_, [](const Keeper &one) { return one.resting.has_value(); });
}

void Doors::look() {
    std::erase_if(keepers_, [](const Keeper &one) { return one.wrapper.left(); });
    if (waiting_.empty())
        return;
    const bool late = until_ && until_->expired();
    if (late)
        kLog.warning("{}", timeout_error(*until_, fmt::format("Slurm's commands in {}", step_)).message());
    if (late && names_steps())
        settle(failure("save", step_,
                       fmt::format("its wrapper has not said within {} s what its steps go on from",
                                   std::chrono::duration_cast<std::chrono::seconds>(until_->span()).count()),
                       SaveError::kStepRuns));
    else if (late || all_rest())
        settle({});
}

// Who is told may ask for something else at once.
void Doors::settle(const Expected<void> &outcome) {
    const auto waiting = std::exchange(waiting_, {});
    until_.reset();
    if (!outcome) {
        wanted_by_.clear();
        go_on();
    }
    for (const auto &[what, then] : waiting)
        then(outcome);
}

} // namespace singularity::agent
