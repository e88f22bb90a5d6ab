// SPDX-License-Identifier: GPL-2.0-or-later
// A host's part of a checkpoint of a job: its nodes do the same step, all at once.
#include "agent/step/save_error.hpp"
#include "job_save.hpp"
#include "member.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

namespace wire = peers::wire;

// Whether a worker has answered what this step is answered with.
bool is_answer_to(wire::SaveJob::Step step, const std::string &packet) {
    switch (step) {
    case wire::SaveJob::BEGIN:
    case wire::SaveJob::HOLD:
        return node::decode<WorkStepped>(packet).has_value();
    case wire::SaveJob::ROUND:
        return node::decode<WorkReports>(packet).has_value();
    case wire::SaveJob::RESUME:
        return node::decode<WorkRunning>(packet).has_value();
    case wire::SaveJob::STORE:
        return node::decode<WorkPart>(packet).has_value();
    default:
        return packet.empty();
    }
}

void add(wire::SavedJob &to, const std::string &packet) {
    if (const auto reports = node::decode<WorkReports>(packet))
        for (const auto &report : reports->reports) {
            auto *const out = to.add_reports();
            out->set_high(report.high);
            out->set_low(report.low);
            out->set_text(report.bytes.data(), report.bytes.size());
        }
    if (const auto part = node::decode<WorkPart>(packet)) {
        to.add_parts(part->name);
        to.set_processes(to.processes() + part->report.processes);
        to.set_host_bytes(to.host_bytes() + part->report.host_bytes);
        to.set_stored_bytes(to.stored_bytes() + part->report.stored_bytes);
        to.set_devices_bytes(to.devices_bytes() + part->report.devices_bytes);
        to.set_memory_bytes(to.memory_bytes() + part->report.memory_bytes);
        to.set_device_bytes(smaller_device(to.device_bytes(), part->report.device_bytes));
        to.set_pause_us(std::max(to.pause_us(), part->report.pause_us));
    }
}

WorkRound round_of(const wire::SaveJob &request) {
    WorkRound out{.requests = {},
                  .otherwise = {request.otherwise().begin(), request.otherwise().end()},
                  .patience_ms = request.patience_ms()};
    for (const auto &one : request.requests())
        out.requests.push_back(
            {.high = one.high(), .low = one.low(), .bytes = {one.text().begin(), one.text().end()}});
    return out;
}

} // namespace

// What the next host that has this node must know of its ranks.
std::vector<char> Member::ranks_of(const wire::JobNode &one) const {
    wire::NodeRanks out;
    for (const auto &task : record_.tasks())
        if (task.node() == one.number())
            *out.add_tasks() = task;
    for (const auto &end : record_.ends())
        if (std::ranges::any_of(out.tasks(), [&](const auto &task) { return task.rank() == end.rank(); }))
            *out.add_ends() = end;
    const auto bytes = out.SerializeAsString();
    return {bytes.begin(), bytes.end()};
}

Expected<void> Member::no_rank_has_failed() const {
    const auto failed = std::ranges::find_if(ranks_, [this](const auto &one) {
        return failed_.contains(one.first) || (one.second.status && *one.second.status != 0);
    });
    if (failed == ranks_.end())
        return {};
    return failure("save", job(), fmt::format("rank {} has ended: so does the job", failed->first),
                   SaveError::kRankHasFailed);
}

void Member::save(const wire::SaveJob &request, const Answer &answer) {
    const auto step = request.step();
    // Who fails later is missed by the worker that saves its node.
    if (step == wire::SaveJob::BEGIN) {
        ends_saved_ = !request.go_on();
        checkpoint_ = request.checkpoint();
    }
    if (step == wire::SaveJob::BEGIN)
        if (auto good = no_rank_has_failed(); !good)
            return answer(fault(good.error()));
    if (step_ && step == wire::SaveJob::HOLD)
        return rest_and_hold(request, answer);
    if (step_ && (step == wire::SaveJob::RESUME || step == wire::SaveJob::LET_GO))
        step_->doors().let_go(Doors::For::save);
    // The job's packets go nowhere from before its first node is saved until all of them run again.
    if (step != wire::SaveJob::HOLD && step != wire::SaveJob::RESUME && step != wire::SaveJob::LET_GO)
        return save_nodes(request, answer);
    cut_and_save(request, answer);
}

void Member::cut_and_save(const wire::SaveJob &request, const Answer &answer) {
    set_cut(request.step() == wire::SaveJob::HOLD, [self = shared_from_this(), request,
                                                    answer](const Expected<void> &cut) {
        if (!cut)
            return answer(fault(cut.error()));
        self->save_nodes(request, request.step() == wire::SaveJob::HOLD ? self->held(answer) : answer);
    });
}

// The nodes stand still. What their tasks' wrappers have to see to then belongs to the same moment.
Member::Answer Member::held(const Answer &answer) {
    if (!step_)
        return answer;
    return [self = shared_from_this(), answer](const wire::Envelope &reply) {
        if (reply.has_fault())
            return answer(reply);
        self->step_->standstill().tell(self->step_->name(),
                                       {.checkpoint = self->checkpoint_, .ends = self->ends_saved_},
                                       [answer, reply] { answer(reply); });
    };
}

// What runs outside of the nodes for their programs is not in an image. It comes to rest when all ranks stand
// still: before that, some must run on to where the others are, and may need their commands for it.
void Member::rest_and_hold(const wire::SaveJob &request, const Answer &answer) {
    saving_ = true;
    step_->doors().rest(
        Doors::For::save,
        [self = shared_from_this(), request, answer](const Expected<void> &rest) {
            if (!rest)
                return answer(fault(rest.error()));
            self->cut_and_save(request, answer);
        },
        ends_saved_);
}

// A coordinator that has died says nothing: the nodes give their parts up by themselves.
void Member::look_at_saving() {
    const auto is_saved = [this](const auto *one) {
        const LiveNode *const node = nodes_->look_at_node(one->name());
        return node != nullptr && node->state() == LiveNode::State::saving;
    };
    if (!saving_ || std::ranges::any_of(own_nodes(), is_saved))
        return;
    saving_ = false;
    step_->doors().let_go(Doors::For::save);
}

void Member::save_nodes(const wire::SaveJob &request, const Answer &answer) {
    const auto own = own_nodes();
    auto reply = std::make_shared<wire::Envelope>();
    reply->mutable_saved_job();
    auto all = when_all(own.size(), [reply, answer](const Expected<void> &outcome) {
        answer(outcome ? std::move(*reply) : fault(outcome.error()));
    });
    for (const auto *const one : own) {
        LiveNode *const node = nodes_->find_node(one->name());
        if (node == nullptr) {
            all(failure("save", one->name(), "there is no such node", ENOENT));
            continue;
        }
        LiveNode::OnStep then = [self = shared_from_this(), all, reply, step = request.step(),
                                 name = one->name()](const Expected<std::string> &packet) {
            if (!packet)
                return all(std::unexpected(packet.error()));
            if (!is_answer_to(step, *packet))
                return all(failure("save", name, "its part of the checkpoint was given up", ECANCELED));
            add(*reply->mutable_saved_job(), *packet);
            if (const auto part = node::decode<WorkPart>(*packet))
                self->tell_user_once(part->report.notices);
            all({});
        };
        switch (request.step()) {
        case wire::SaveJob::BEGIN:
            node->begin_part({.checkpoint = request.checkpoint(),
                              .go_on = request.go_on(),
                              .ranks = ranks_of(*one),
                              .store = request.store()},
                             std::move(then));
            break;
        case wire::SaveJob::ROUND:
            node->round(round_of(request), std::move(then));
            break;
        case wire::SaveJob::HOLD:
            node->step(PartStep::hold, std::move(then));
            break;
        case wire::SaveJob::RESUME:
            node->step(PartStep::resume, std::move(then));
            break;
        case wire::SaveJob::STORE:
            node->step(PartStep::store, std::move(then));
            break;
        case wire::SaveJob::LET_GO:
            node->let_go(std::move(then));
            break;
        default:
            then(failure("save", one->name(),
                         fmt::format("there is no step {}", static_cast<int>(request.step())), EPROTO));
        }
    }
}

// The same files are too large at each checkpoint.
void Member::tell_user_once(const std::vector<std::string> &notices) {
    constexpr std::size_t kMost = 64;
    for (const auto &notice : notices)
        if (told_.size() < kMost && told_.insert(notice).second)
            tell_user({notice});
}

// A command that is soon over is no obstacle.
void Member::check(const Answer &answer) {
    if (!step_)
        return look_at_nodes(answer);
    step_->doors().rest(Doors::For::check, [self = shared_from_this(), answer](const Expected<void> &rest) {
        if (!rest && (rest.error().code == ECANCELED || rest.error().code == SaveError::kStepRuns))
            return answer(fault(rest.error()));
        if (!rest) {
            wire::Envelope reply;
            reply.mutable_checked_job()->set_obstacle(rest.error().message());
            return answer(std::move(reply));
        }
        self->look_at_nodes([self, answer](wire::Envelope reply) {
            self->step_->doors().let_go(Doors::For::check);
            answer(std::move(reply));
        });
    });
}

// What has been found counts, also where another node could not be looked at.
void Member::look_at_nodes(const Answer &answer) {
    const auto own = own_nodes();
    auto reply = std::make_shared<wire::Envelope>();
    reply->mutable_checked_job();
    auto all = when_all(own.size(), [reply, answer](const Expected<void> &outcome) {
        answer(outcome || !reply->checked_job().obstacle().empty() ? std::move(*reply)
                                                                   : fault(outcome.error()));
    });
    for (const auto *const one : own) {
        LiveNode *const node = nodes_->find_node(one->name());
        if (node == nullptr) {
            all(failure("check", one->name(), "there is no such node", ENOENT));
            continue;
        }
        node->check([all, reply](const Expected<std::string> &obstacle) {
            if (!obstacle)
                return all(std::unexpected(obstacle.error()));
            if (!obstacle->empty())
                reply->mutable_checked_job()->set_obstacle(*obstacle);
            all({});
        });
    }
}

} // namespace singularity::agent
