// SPDX-License-Identifier: GPL-2.0-or-later
#include "cover.hpp"

#include <algorithm>
#include <set>

namespace singularity::planner {

namespace {

// What Slurm would take from it, the planner could not give back.
bool is_owed(const policy::Job &job, const policy::Rules &rules) {
    return policy::Ledger::fraction(job.work, job.elapsed) < rules.of(job.tier).guarantee;
}

void cover(const Pool &pool, const policy::Plan &plan, const policy::Rules &rules, Protection &out) {
    std::set<std::uint32_t> served;
    for (const auto &action : plan.actions) {
        if (action.kind == policy::ActionKind::kStart)
            served.insert(action.job);
        if (action.beneficiary != policy::kNobody)
            served.insert(action.beneficiary);
    }
    for (std::uint32_t i = 0; i < pool.jobs.size(); ++i) {
        const auto &job = pool.snapshot.jobs[i];
        const auto id = pool.jobs[i]->id;
        if (pool.jobs[i]->pending)
            (served.contains(i) ? out.served : out.waiting).push_back(id);
        else if (job.movable || job.state == policy::JobState::kMoving || is_owed(job, rules))
            out.covered.push_back(id);
    }
}

} // namespace

Protection cover(const Outlook &outlook, std::span<const policy::Plan> plans,
                 std::span<const slurm::Job> jobs, const policy::Rules &rules, std::time_t until) {
    Protection out;
    out.until = until;
    for (const auto &job : jobs)
        out.newest = std::max(out.newest, job.id);
    for (std::size_t i = 0; i < outlook.pools.size(); ++i)
        cover(outlook.pools[i], plans[i], rules, out);
    for (auto *const list : {&out.served, &out.waiting, &out.covered})
        std::ranges::sort(*list);
    return out;
}

} // namespace singularity::planner
