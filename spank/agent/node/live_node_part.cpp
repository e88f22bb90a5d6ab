// SPDX-License-Identifier: GPL-2.0-or-later
// A node's part of a checkpoint of its job.
#include "live_node.hpp"

#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

} // namespace

void LiveNode::begin_part(PartPlan plan, OnStep on_step) {
    if (auto begun = begin_saving(true, false, &plan); !begun)
        return on_step(propagate(begun));
    part_ = plan.go_on;
    on_step_ = std::move(on_step);
}

void LiveNode::round(const WorkRound &round, OnStep on_step) {
    ask_worker(node::encode(round), std::move(on_step));
}

void LiveNode::step(PartStep step, OnStep on_step) {
    // Before the part can be delivered.
    if (step == PartStep::store && part_ && !*part_)
        if (auto written = set_in_doubt(true); !written)
            return on_step(propagate(written));
    ask_worker(node::encode(WorkStep{.step = step}), std::move(on_step));
}

void LiveNode::ask_worker(const std::string &packet, OnStep on_step) {
    const auto refuse = [&](std::string why) {
        on_step(failure("save", record_.spec.name, std::move(why), EAGAIN));
    };
    if (!part_ || !worker_ || worker_->hung_up())
        return refuse("its part of the checkpoint has been given up");
    if (on_step_)
        return refuse("the step before has not come to its end");
    if (auto asked = worker_->pass_on(packet); !asked)
        return on_step(propagate(asked));
    on_step_ = std::move(on_step);
}

void LiveNode::let_go(OnStep on_step) {
    if (auto written = set_in_doubt(false); !written)
        return on_step(propagate(written));
    if (state_ == State::ending || state_ == State::gone)
        return on_step(failure("let go on", record_.spec.name, "it has ended", ECHILD));
    // A step that is under way ends first, or is of no interest any more.
    if (const auto before = std::exchange(on_step_, {}))
        before(failure("save", record_.spec.name, "the checkpoint is given up", ECANCELED));
    if (part_ && worker_) { // else it is being undone already
        part_.reset();
        if (auto asked = worker_->tell(WorkStep{.step = PartStep::let_go}); !asked)
            return on_step(propagate(asked));
    } else if (!worker_ && state_ == State::saving) {
        if (auto recovering = recover(); !recovering) {
            work_failed(recovering.error(), true);
            return on_step(propagate(recovering));
        }
    } else if (!worker_) {
        return on_step(std::string());
    }
    on_step_ = std::move(on_step);
}

Expected<void> LiveNode::set_in_doubt(bool in_doubt) {
    if (std::exchange(record_.in_doubt, in_doubt) == in_doubt)
        return {};
    return room_.write(record_);
}

bool LiveNode::take_step(const node::Packet &packet) {
    if (!on_step_)
        return false;
    if (node::decode<WorkRunning>(packet.bytes)) {
        state_ = State::joining;
        retry_ = Deadline::after(0s);
    } else if (!node::decode<WorkStepped>(packet.bytes) && !node::decode<WorkReports>(packet.bytes) &&
               !node::decode<WorkPart>(packet.bytes)) {
        return false;
    }
    answer_step(packet.bytes);
    return true;
}

void LiveNode::answer_step(Expected<std::string> packet) {
    if (const auto on_step = std::exchange(on_step_, {}))
        on_step(std::move(packet));
}

} // namespace singularity::agent
