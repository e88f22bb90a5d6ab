// SPDX-License-Identifier: GPL-2.0-or-later
#include "hands.hpp"

#include "common/slurm/note.hpp"
#include "common/slurm/placement.hpp"
#include "log.hpp"
#include "subject.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace singularity::planner {

namespace {

// A pause is prolonged when no more than this is left of it.
constexpr std::time_t kPauseLeft = slurm::kPause / 2;

// In one look: the rest has its turn in the next ones. slurmctld computes a priority for each.
constexpr std::uint32_t kMostPrioritised = 200;

// What users may change of their jobs is changed as theirs: what root or SlurmUser changes, Slurm does not
// check against limits.
slurm::User owner_of(const slurm::Job &job) { return {.uid = job.uid, .gid = job.gid}; }

std::string names(std::span<const slurm::GpuShare> shares) {
    std::string out;
    for (const auto &share : shares)
        out += fmt::format("{}{}", out.empty() ? "" : ",", share.node);
    return out;
}

// As it is now, not as it was when the cluster was looked at: agents write there too. ESRCH: it runs no
// longer, and nothing was changed.
Expected<void> change_note(std::uint32_t id, const auto &change) {
    auto job = slurm::load_job(id);
    if (!job)
        return propagate(job);
    if (!job->running)
        return failure("write the note of job", std::to_string(id), "it runs no longer", ESRCH);
    auto note = slurm::Note::parse(job->admin_comment);
    if (!note)
        return failure("write the note of job", std::to_string(id),
                       "its AdminComment is used for something else: take that out", EEXIST);
    if (auto changed = change(*note); !changed)
        return changed;
    return slurm::update_job(id, {.admin_comment = note->text()});
}

} // namespace

void Hands::carry_out(const Pool &pool, const policy::Plan &plan) {
    const auto &snapshot = pool.snapshot;
    std::set<std::uint32_t> decided;
    std::set<std::uint32_t> served; // for whom others make room
    for (const auto &action : plan.actions)
        if (action.beneficiary != policy::kNobody)
            served.insert(action.beneficiary);
    for (const auto &action : plan.actions) {
        decided.insert(action.job);
        const auto &job = *pool.jobs[action.job];
        const auto gpus = action.kind == policy::ActionKind::kYield
                              ? 0
                              : snapshot.sizes_of(snapshot.jobs[action.job])[action.size].gpus;
        if (action.kind == policy::ActionKind::kStart) {
            start(job, gpus, !served.contains(action.job));
            continue;
        }
        std::vector<slurm::GpuShare> target;
        for (const auto &share : plan.shares_of(action))
            target.push_back({.node = pool.nodes[share.node]->name, .gpus = share.gpus});
        kLog.for_job(job.id).info("{}", policy::describe(action, snapshot));
        move(job, action, gpus, std::move(target));
    }
    for (std::uint32_t job = 0; job < pool.jobs.size(); ++job)
        if (!decided.contains(job) && pool.jobs[job]->pending)
            keep_waiting(*pool.jobs[job]);
}

void Hands::start(const slurm::Job &job, std::uint32_t gpus, bool has_room) {
    auto *const record = records_.find(job.id);
    if (record == nullptr)
        return;
    slurm::Change change;
    const auto asked = gpus_of(job);
    if (asked != gpus) {
        auto wish = slurm::with_gpus(job.wishes.gpus, gpus);
        if (!wish) {
            ++done_.failed;
            kLog.for_job(job.id).error("{}", wish.error().message());
            return;
        }
        change.gpus = std::move(*wish);
    }
    if (record->yielded)
        change.begin = static_cast<std::time_t>(now_ / policy::kSecond);
    if (change != slurm::Change{}) {
        if (auto changed = slurm::update_job(job.id, change, owner_of(job)); !changed) {
            ++done_.failed;
            record->excused_until = now_ + kExcused;
            kLog.for_job(job.id).error("{}; it is not planned for during the next {} s",
                                       changed.error().message(), kExcused / policy::kSecond);
            return;
        }
        if (asked != gpus)
            record->resized = now_;
        kLog.for_job(job.id).info("may begin with {} GPUs (it asked for {})", gpus, asked);
        ++done_.actions[static_cast<std::size_t>(policy::ActionKind::kStart)];
        record->yielded = false;
    }
    if (!has_room)
        record->offered = 0;
    else if (record->offered == 0)
        record->offered = now_;
    if (record->offered == 0 || now_ - record->offered < kMostOffered)
        return;
    kLog.for_job(job.id).warning(
        "there has been room for {} GPUs for {} s and Slurm has not started it: it is "
        "not planned for during the next {} s; 'scontrol show job' says why it waits",
        gpus, (now_ - record->offered) / policy::kSecond, kExcused / policy::kSecond);
    record->excused_until = now_ + kExcused;
    record->offered = 0;
}

void Hands::move(const slurm::Job &job, const policy::Action &action, std::uint32_t gpus,
                 std::vector<slurm::GpuShare> target) {
    auto *const record = records_.find(job.id);
    if (record == nullptr)
        return;
    const bool elsewhere = action.kind == policy::ActionKind::kMigrate;
    const slurm::Decision decision{.waits = action.kind == policy::ActionKind::kYield,
                                   .gpus = gpus,
                                   .nodes = elsewhere ? names(target) : std::string()};
    auto done = change_note(job.id, [&](slurm::Note &note) { return slurm::decide(note, decision); });
    if (done)
        done = slurm::requeue_running(job.id);
    if (!done && done.error().code == ESRCH) { // it has ended since the look
        kLog.for_job(job.id).info("{}", done.error().message());
        return;
    }
    if (!done) {
        ++done_.failed;
        kLog.for_job(job.id).error("{}", done.error().message());
        take_back(job);
        return;
    }
    ++done_.actions[static_cast<std::size_t>(action.kind)];
    record->ledger.moved(now_);
    record->moving_since = now_;
    record->moving_until = now_ + kMostMoving;
    record->moving_to = gpus;
    record->resized = gpus == 0 ? 0 : now_;
    record->runs = job.restarts;
    record->yielded = decision.waits;
    records_.aim(job.id, std::move(target));
}

void Hands::keep_waiting(const slurm::Job &job) {
    auto *const record = records_.find(job.id);
    if (record == nullptr)
        return;
    record->offered = 0;
    const auto now = static_cast<std::time_t>(now_ / policy::kSecond);
    if (!record->yielded || job.begin > now + kPauseLeft)
        return;
    if (auto later = slurm::update_job(job.id, {.begin = now + slurm::kPause}, owner_of(job)); !later) {
        ++done_.failed;
        kLog.for_job(job.id).error("{}", later.error().message());
    }
}

void Hands::prioritise(const Pool &pool, const policy::Rules &rules, std::int64_t weight) {
    for (std::size_t i = 0; i < pool.jobs.size() && prioritised_ < kMostPrioritised; ++i) {
        const auto &job = *pool.jobs[i];
        const auto factor = site_factor_of(pool.snapshot.jobs[i], rules, weight);
        if (!job.pending || job.site_factor == factor)
            continue;
        ++prioritised_;
        if (auto changed = slurm::update_job(job.id, {.site_factor = factor}); !changed) {
            ++done_.failed;
            kLog.for_job(job.id).error("{}", changed.error().message());
        }
    }
}

void Hands::take_back(const slurm::Job &job) {
    const auto before = slurm::Note::parse(job.admin_comment);
    if (!before)
        return;
    auto done = change_note(job.id, [](slurm::Note &note) {
        slurm::forget_decision(note);
        return Expected<void>();
    });
    if (!done)
        kLog.for_job(job.id).error("{}", done.error().message());
}

} // namespace singularity::planner
