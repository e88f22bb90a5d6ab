// SPDX-License-Identifier: GPL-2.0-or-later
// What a snapshot must be for a plan to be made of it. Everything the planner relies on, so that it never
// checks again.
#include "select-plugin/policy/plan.hpp"

#include <fmt/format.h>

namespace singularity::policy {
namespace {

// Keeps every product of the policy inside 64 bits: Work of 30 years, GPU time of 2^20 GPUs for as long.
constexpr Milliseconds kLongest = 30LL * 366 * 24 * kHour;
constexpr std::uint32_t kMostGpus = 1U << 20U;

bool in_range(Milliseconds time) { return time >= 0 && time <= kLongest; }

std::string defect_of_sizes(std::span<const Size> sizes) {
    if (sizes.empty())
        return "has no size";
    for (std::size_t index = 0; index < sizes.size(); ++index) {
        const Size &size = sizes[index];
        if (size.gpus == 0 || size.gpus > kMostGpus)
            return fmt::format("size {} has {} GPUs", index, size.gpus);
        if (size.block == 0 || size.block > kMostGpusOfNode || size.gpus % size.block != 0)
            return fmt::format("size {}: blocks of {} GPUs do not make {}", index, size.block, size.gpus);
        if (size.speed <= 0 || size.speed > kOne)
            return fmt::format("size {} has speed {}", index, size.speed);
        if (index > 0 && (size.gpus <= sizes[index - 1].gpus || size.speed < sizes[index - 1].speed))
            return fmt::format("size {} is not above the one before", index);
    }
    if (sizes.back().speed != kOne)
        return fmt::format("the size that it asked for has speed {}", sizes.back().speed);
    return {};
}

std::string defect_of_times(const Job &job) {
    for (const Milliseconds time :
         {job.elapsed, job.hour_elapsed, job.since_move, job.since_checkpoint, job.move_cost}) {
        if (!in_range(time))
            return fmt::format("a time of {} ms", time);
    }
    if (job.work < 0 || job.work > kLongest * kOne || job.hour_work < 0 || job.hour_work > kLongest * kOne)
        return "more work than time allows";
    if (job.gpu_time < 0)
        return "negative GPU time";
    return {};
}

std::string defect_of_shares(const Job &job, const Snapshot &snapshot, std::vector<std::uint32_t> &used,
                             std::vector<std::uint32_t> &seen, std::uint32_t mark) {
    const auto shares = snapshot.shares_of(job);
    if (job.state == JobState::kPending && !shares.empty())
        return "is pending and has shares";
    std::uint64_t gpus = 0;
    std::uint64_t blocks = 0;
    const auto sizes = snapshot.sizes_of(job);
    const bool running = job.state == JobState::kRunning;
    if (job.state != JobState::kPending && job.size >= job.sizes)
        return fmt::format("is at size {} of {}", job.size, job.sizes);
    for (const Share &share : shares) {
        if (share.node >= snapshot.nodes.size())
            return fmt::format("has a share of node {}, which does not exist", share.node);
        if (!is_among(snapshot.nodes[share.node].kind, job.kinds))
            return fmt::format("has a share of node {}, which it may not use", share.node);
        if (share.gpus == 0 || seen[share.node] == mark)
            return fmt::format("has no or two shares of node {}", share.node);
        seen[share.node] = mark;
        if (share.gpus > snapshot.nodes[share.node].gpus - used[share.node])
            return fmt::format("has a share of {} GPUs of node {}, more than are left there", share.gpus,
                               share.node);
        used[share.node] += share.gpus;
        gpus += share.gpus;
        blocks += share.gpus % sizes[job.size].block == 0 ? share.gpus / sizes[job.size].block : 0;
    }
    if (running && (gpus != sizes[job.size].gpus || blocks * sizes[job.size].block != gpus))
        return fmt::format("has {} GPUs, not the {} of its size in blocks of {}", gpus, sizes[job.size].gpus,
                           sizes[job.size].block);
    return {};
}

} // namespace

std::string defect_of(const Snapshot &snapshot) {
    std::vector<std::uint32_t> kinds(snapshot.nodes.size() + 1, kMostKinds); // by leaf
    for (std::size_t node = 0; node < snapshot.nodes.size(); ++node) {
        if (snapshot.nodes[node].gpus > kMostGpusOfNode)
            return fmt::format("node {} has {} GPUs", node, snapshot.nodes[node].gpus);
        if (snapshot.nodes[node].leaf > snapshot.nodes.size())
            return fmt::format("node {} is under leaf {}: leaves are numbered from 0 without gaps", node,
                               snapshot.nodes[node].leaf);
        if (snapshot.nodes[node].kind >= kMostKinds)
            return fmt::format("node {} is of kind {}", node, snapshot.nodes[node].kind);
        std::uint32_t &kind = kinds[snapshot.nodes[node].leaf];
        if (kind != kMostKinds && kind != snapshot.nodes[node].kind)
            return fmt::format("leaf {} has nodes of kinds {} and {}", snapshot.nodes[node].leaf, kind,
                               snapshot.nodes[node].kind);
        kind = snapshot.nodes[node].kind;
    }
    std::vector<std::uint32_t> used(snapshot.nodes.size());
    std::vector<std::uint32_t> seen(snapshot.nodes.size(), kNobody);
    for (std::uint32_t index = 0; index < snapshot.jobs.size(); ++index) {
        const Job &job = snapshot.jobs[index];
        if (std::uint64_t{job.first_size} + job.sizes > snapshot.sizes.size() ||
            std::uint64_t{job.first_share} + job.shares > snapshot.shares.size())
            return fmt::format("job {} has ranges outside of the snapshot", job.id);
        if (static_cast<std::size_t>(job.tier) >= kTiers)
            return fmt::format("job {} has no tier", job.id);
        std::string defect = defect_of_sizes(snapshot.sizes_of(job));
        if (defect.empty())
            defect = defect_of_times(job);
        if (defect.empty())
            defect = defect_of_shares(job, snapshot, used, seen, index);
        if (!defect.empty())
            return fmt::format("job {} {}", job.id, defect);
    }
    return {};
}

} // namespace singularity::policy
