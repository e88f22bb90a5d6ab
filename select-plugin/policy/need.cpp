// SPDX-License-Identifier: GPL-2.0-or-later
// What a job's guarantee asks for: its need and its shortfall.
#include "state.hpp"

#include <algorithm>

namespace singularity::policy {
namespace {

// Work above (below: negative) the guarantee, by the life or the hour, whichever is less: what was banked
// more than an hour ago does not excuse starving a job now, and a good hour does not make up for a bad life.
Work slack_of(const Job &job, Fraction guarantee) {
    return std::min(job.work - (guarantee * job.elapsed), job.hour_work - (guarantee * job.hour_elapsed));
}

} // namespace

bool bears_move(const Job &job, const Snapshot &snapshot, const Rules &rules) {
    const Fraction aim = rules.aim_of(job.tier);
    const Milliseconds runs = std::max<Milliseconds>(0, rules.horizon - job.move_cost);
    const Work gained = snapshot.sizes_of(job)[job.size].speed * runs;
    return aim == 0 || slack_of(job, aim) + gained - (aim * std::max(rules.horizon, job.move_cost)) >= 0;
}

std::uint32_t need_of(const Job &job, const Snapshot &snapshot, const Rules &rules) {
    const Fraction aim = rules.aim_of(job.tier);
    if (aim == 0)
        return kNobody;
    const Work slack = slack_of(job, aim);
    // Living on the slack ends with a move, and what lasts for less than a move must pay for is not worth
    // beginning.
    const Milliseconds long_enough = std::max(rules.horizon, rules.payback) + job.move_cost;
    if (slack - (aim * long_enough) >= 0)
        return kNobody;
    const auto sizes = snapshot.sizes_of(job);
    for (std::uint32_t size = 0; size + 1 < job.sizes; ++size) {
        const Fraction speed = sizes[size].speed;
        const bool stays = job.state != JobState::kPending && job.size == size;
        const Milliseconds lost = (stays ? 0 : job.move_cost) + (speed < aim ? job.move_cost : 0);
        const Milliseconds lasts = speed < aim ? long_enough : rules.horizon;
        if (slack + (speed * std::max<Milliseconds>(0, lasts - lost)) - (aim * std::max(lasts, lost)) >= 0)
            return size;
    }
    return job.sizes - 1;
}

Fraction shortfall_of(const Job &job, const Snapshot &snapshot, const Rules &rules) {
    const Fraction guarantee = rules.of(job.tier).guarantee;
    if (guarantee == 0)
        return 0;
    const Fraction speed = job.state == JobState::kPending ? 0 : snapshot.sizes_of(job)[job.size].speed;
    const Work gained = speed * rules.horizon;
    const Fraction life = Ledger::fraction(job.work + gained, job.elapsed + rules.horizon);
    const Fraction hour = Ledger::fraction(job.hour_work + gained, job.hour_elapsed + rules.horizon);
    return std::max<Fraction>(0, guarantee - std::min(life, hour));
}

} // namespace singularity::policy
