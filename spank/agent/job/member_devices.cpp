// SPDX-License-Identifier: GPL-2.0-or-later
// A device of this host's that is gone, its proxy with it, while ranks of a step use it. The step is not to
// fail because of that where it can go on from a checkpoint, so its coordinator is told before Slurm hears of
// ranks that have failed: those of other hosts, which have lost the others of their collectives, as well.
#include "agent/log.hpp"
#include "member.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

// Whoever kills all of a step kills its proxies, too, and its wrappers a moment later.
constexpr auto kUntilClear = 300ms;
// For a host that has lost a device to say so, and for the coordinator.
constexpr auto kFailedRests = 1000ms;

} // namespace

void Member::look_at_devices() {
    if (!record_.prepare().of_script() || !step_ || ending_)
        return;
    if (!lost_device_ && tell_failed_ && tell_failed_->expired())
        tell_failed();
    if (!lost_device_)
        for (const auto *const one : own_nodes())
            if (const LiveNode *const node = nodes_->look_at_node(one->name());
                node != nullptr && !node->lost_device().empty() && !lost_device_)
                lost_device_ = LostDevice{.why = node->lost_device(), .clear = Deadline::after(kUntilClear)};
    if (!lost_device_ || lost_device_->told || !lost_device_->clear.expired())
        return;
    const auto is_abandoned = [this](const auto &one) { return step_->is_abandoned(one.first); };
    const bool all_have_ended = failed_.empty() && std::ranges::all_of(ranks_, [](const auto &one) {
                                    return one.second.status.has_value();
                                });
    if (all_have_ended || step_->is_told_to_end() || std::ranges::any_of(ranks_, is_abandoned)) {
        lost_device_->told = true;
        return tell_failed();
    }
    if (!following_) // the coordinator asks again
        return;
    lost_device_->told = true;
    std::exchange(following_, std::nullopt)->answer(fault({"go on with", job(), lost_device_->why, ENODEV}));
}

std::optional<Deadline> Member::next_look_at_devices() const {
    if (!lost_device_)
        return tell_failed_;
    // Without a question of the coordinator's that could be answered, its next one is waited for.
    const bool waits = !following_ && lost_device_->clear.expired();
    return lost_device_->told || waits ? std::nullopt : std::optional(lost_device_->clear);
}

// Of a rank of a step with devices it is told a moment later.
void Member::rank_has_failed(std::uint32_t rank, std::int32_t status) {
    const bool may_go_on =
        record_.prepare().of_script() && step_ && !step_->is_told_to_end() && !step_->is_abandoned(rank) &&
        (!lost_device_ || !lost_device_->told) &&
        std::ranges::any_of(own_nodes(), [](const auto *one) { return one->devices() != 0; });
    if (!may_go_on)
        return rank_has_ended(rank, status);
    failed_.emplace(rank, status);
    if (!tell_failed_)
        tell_failed_ = Deadline::after(kFailedRests);
    look_at_devices();
}

void Member::tell_failed() {
    tell_failed_.reset();
    for (const auto &[rank, status] : std::exchange(failed_, {}))
        rank_has_ended(rank, status);
}

void Member::rank_has_ended(std::uint32_t rank, std::int32_t status) {
    auto &one = ranks_.at(rank);
    if (one.status)
        return;
    one.status = status;
    auto *const end = record_.add_ends();
    end->set_rank(rank);
    end->set_status(status);
    if (step_)
        step_->ended(rank, status);
    if (auto written = write(); !written)
        kLog.error("{}", written.error().message());
}

} // namespace singularity::agent
