// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/barrier/gate_state.hpp"

namespace singularity::barrier {

bool GateState::is_member(const Line &line) const {
    const auto at = members_.lower_bound({.communicator = line.communicator, .rank = line.rank, .size = 0});
    return at != members_.end() && at->communicator == line.communicator && at->rank == line.rank;
}

void GateState::leave(const Member &member) {
    members_.erase(member);
    std::erase_if(lines_, [&](const auto &entry) {
        const auto &[line, counter] = entry;
        const bool gone = line.communicator == member.communicator && line.rank == member.rank;
        if (gone && counter.issued < counter.target)
            --behind_;
        return gone;
    });
}

void GateState::pass(std::span<const Line> group) {
    if (closed_ && behind_ == 0)
        step_ = false;
    for (const auto &line : group) {
        if (!is_member(line))
            continue;
        auto &counter = lines_[line];
        if (++counter.issued == counter.target)
            --behind_;
    }
}

void GateState::open() {
    closed_ = false;
    step_ = false;
    behind_ = 0;
    for (auto &[line, counter] : lines_)
        counter.target = 0;
}

void GateState::apply(const Request &request, bool held) {
    if (request.action == Request::Action::release) {
        if (request.barrier == barrier_)
            open();
        return;
    }
    if (request.barrier == barrier_ && request.round <= round_)
        return;
    if (request.barrier != barrier_)
        open(); // an earlier coordinator's targets are not this one's
    barrier_ = request.barrier;
    round_ = request.round;
    closed_ = true;
    for (const auto &target : request.targets) {
        if (!is_member(target.line))
            continue;
        auto &counter = lines_[target.line];
        const bool was_behind = counter.issued < counter.target;
        counter.target = target.number;
        const bool is_behind = counter.issued < counter.target;
        if (is_behind && !was_behind)
            ++behind_;
        else if (was_behind && !is_behind)
            --behind_;
    }
    // Nobody who comes later is meant.
    step_ = request.step && held && behind_ == 0;
}

Report GateState::report(bool held, std::size_t passing) {
    step_ = false;
    Report report;
    report.barrier = barrier_;
    report.round = round_;
    report.settled = settled(passing);
    report.held = held;
    report.members.assign(members_.begin(), members_.end());
    for (const auto &[line, counter] : lines_)
        if (counter.issued > 0)
            report.issued.push_back({.line = line, .number = counter.issued});
    return report;
}

} // namespace singularity::barrier
