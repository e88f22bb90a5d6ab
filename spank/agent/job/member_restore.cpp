// SPDX-License-Identifier: GPL-2.0-or-later
// A host's part of a restore of a job: its nodes come from the checkpoint, stand still until those of all
// hosts are there, and go on.
#include "agent/log.hpp"
#include "common/text.hpp"
#include "member.hpp"
#include "responder_for.hpp"

#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace wire = peers::wire;

// It is connected when it has all of its sockets, so nothing that its peers send is refused, and before it
// runs, so nothing that it sends is lost.
void Member::restore(const wire::JobNode &one, NodeKeeper::Home home,
                     std::function<void(Expected<void>)> then) {
    const auto &connect = record_.connect();
    coming_[one.name()].then = std::move(then);
    if (step_)
        step_->goes_on_from(connect.checkpoint());
    nodes_->restore_node(
        {.checkpoint = connect.checkpoint(),
         .store = connect.store(),
         .spec = spec_of(one),
         .cgroups = record_.prepare().cgroups(),
         .share = share_of(one),
         .rendezvous = rendezvous_of(one),
         .on_found = [self = shared_from_this(),
                      &one](const std::vector<char> &ranks) { return self->take_ranks(one, ranks); },
         .on_held =
             [self = shared_from_this(), &one](const LiveNode::Ends &ends) {
                 self->attach(one, ends, [self, &one](const Expected<void> &attached) {
                     self->tell(one.name(), attached);
                 });
             },
         .home = std::move(home)},
        responder_for<Imaged>([self = shared_from_this(), &one](Expected<Imaged> imaged) {
            if (!imaged)
                return self->tell(one.name(), propagate(imaged));
            self->tell_user(imaged->report.notices);
            self->restored(one);
            self->tell(one.name(), {});
        }));
}

void Member::tell(const std::string &node, const Expected<void> &outcome) {
    auto &one = coming_[node];
    if (const auto then = std::exchange(one.then, {}))
        then(outcome);
    else if (!outcome)
        one.failed = outcome.error();
}

void Member::go_on(const Answer &answer) {
    auto all = when_all(coming_.size(), [self = shared_from_this(), answer](const Expected<void> &outcome) {
        if (outcome && self->step_)
            self->step_->start_idle();
        answer(done(outcome));
    });
    for (auto &[name, one] : coming_) {
        one.then = all;
        LiveNode *const node = nodes_->find_node(name);
        if (one.failed)
            tell(name, std::unexpected(*one.failed));
        else if (node == nullptr)
            tell(name, failure("go on with", quote(name), "there is no such node", ENOENT));
        else if (auto going = node->go_on(); !going)
            tell(name, going);
    }
}

// Of a step, where its tasks here print.
void Member::tell_user(const std::vector<std::string> &notices) {
    for (const auto &notice : notices) {
        kLog.info("{}: {}", job(), notice);
        if (step_)
            step_->say(notice);
    }
}

void Member::restored(const wire::JobNode &one) {
    for (const auto &[rank, about] : ranks_) {
        if (about.node != one.name())
            continue;
        if (step_)
            step_->started(rank, {.node = about.node, .task = about.task});
        if (!about.status)
            watch_rank(rank);
        else if (step_)
            step_->ended(rank, *about.status);
    }
}

Expected<GivenTasks> Member::take_ranks(const wire::JobNode &one, const std::vector<char> &ranks) {
    wire::NodeRanks saved;
    if (!saved.ParseFromArray(ranks.data(), static_cast<int>(ranks.size())) || saved.tasks().empty())
        return failure("restore", one.name(), "it has no record of its ranks", EBADMSG);
    for (const auto &task : saved.tasks()) {
        if (task.node() != one.number())
            return failure("restore", one.name(), "its record of ranks is another node's", EBADMSG);
        if (step_ && !task_of_rank_.contains(task.rank()))
            return failure("restore", one.name(), fmt::format("its rank {} is another node's", task.rank()),
                           EBADMSG);
        ranks_[task.rank()] = {.node = one.name(), .task = task.task(), .status = {}};
        auto *const about = record_.add_tasks();
        *about = task;
        if (step_)
            about->set_slurm_task(task_of_rank_.at(task.rank()));
    }
    for (const auto &end : saved.ends())
        if (const auto found = ranks_.find(end.rank()); found != ranks_.end()) {
            found->second.status = end.status();
            *record_.add_ends() = end;
        }
    GivenTasks all;
    if (step_)
        for (const auto &task : saved.tasks()) {
            auto given = step_->give_again(task_of_rank_.at(task.rank()));
            if (!given)
                return propagate(given);
            all[task.task()] = std::move(*given);
        }
    auto written = write();
    return written ? Expected<GivenTasks>(std::move(all)) : propagate(written);
}

} // namespace singularity::agent
