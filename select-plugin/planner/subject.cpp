// SPDX-License-Identifier: GPL-2.0-or-later
#include "subject.hpp"

#include "common/slurm/gres.hpp"
#include "common/slurm/memory.hpp"
#include "common/slurm/note.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

namespace singularity::planner {

namespace {

std::optional<std::uint32_t> number(std::string_view text) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    return error == std::errc() && end == text.end() ? std::optional(value) : std::nullopt;
}

// Every block lies within one node. 0: the job cannot have so many GPUs on the nodes that it asks for.
std::uint32_t block_of(const slurm::Job &job, std::uint32_t gpus) {
    const bool fixed = job.most_nodes != 0 && job.most_nodes == job.least_nodes;
    if (!fixed)
        return 1;
    return gpus % job.least_nodes == 0 ? gpus / job.least_nodes : 0;
}

std::uint32_t ranks_on_the_busiest(std::uint32_t ranks, std::uint32_t gpus) {
    return (ranks + gpus - 1) / gpus;
}

// The ranks of one GPU take turns, and all ranks wait for the slowest.
policy::Fraction speed_of(std::uint32_t ranks, std::uint32_t gpus, std::uint32_t most) {
    return policy::kOne * ranks_on_the_busiest(ranks, most) / ranks_on_the_busiest(ranks, gpus);
}

void thin_out(std::vector<policy::Size> &sizes, std::uint32_t present) {
    const std::size_t step = (sizes.size() + kMostSizes - 1) / kMostSizes;
    if (step < 2)
        return;
    std::vector<policy::Size> kept;
    for (std::size_t i = 0; i < sizes.size(); ++i)
        if (i % step == 0 || i + 1 == sizes.size() || sizes[i].gpus == present)
            kept.push_back(sizes[i]);
    sizes = std::move(kept);
}

} // namespace

std::optional<Range> range_of(const slurm::Job &job) {
    const auto note = slurm::Note::parse(job.admin_comment);
    if (!note)
        return std::nullopt;
    const auto text = note->get("elastic");
    const auto hyphen = text.find('-');
    if (hyphen == std::string::npos)
        return std::nullopt;
    const auto least = number(std::string_view(text).substr(0, hyphen));
    const auto most = number(std::string_view(text).substr(hyphen + 1));
    // The user's environment may say anything, and each size is looked at.
    if (!least || !most || *least == 0 || *least > *most || *most > kAnySize.most)
        return std::nullopt;
    return Range{.least = *least, .most = *most};
}

policy::Tier tier_of(const slurm::Job &job) {
    for (const auto &name : {job.qos, job.partition})
        for (const auto tier : {policy::Tier::kPremium, policy::Tier::kStandard, policy::Tier::kBasic})
            if (name == policy::name_of(tier))
                return tier;
    return policy::Tier::kBasic;
}

std::uint32_t gpus_of(const slurm::Job &job) {
    std::uint32_t sum = 0;
    for (const auto &share : job.shares)
        sum += share.gpus;
    return job.pending ? slurm::gpus_wished(job.wishes.gpus, job.tasks) : sum;
}

std::vector<policy::Size> sizes_of(const slurm::Job &job, const Speeds &speeds, const Range &allowed) {
    const auto has = gpus_of(job);
    if (has == 0)
        return {};
    const auto range = range_of(job);
    // A running job's blocks are where they are.
    const auto own_block = !job.pending ? 1 : std::max(1U, block_of(job, has));
    if (!range || range->most < has)
        return {{.gpus = has, .block = own_block, .speed = policy::kOne}};
    const Range within{.least = std::max(range->least, allowed.least),
                       .most = std::min(range->most, allowed.most)};
    if (within.least > within.most)
        return {{.gpus = has, .block = own_block, .speed = policy::kOne}};
    const auto note = slurm::Note::parse(job.admin_comment).value_or(slurm::Note());
    const auto ranks = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(note.number("ranks").value_or(range->most), range->most, kAnySize.most));
    std::vector<policy::Size> out;
    const auto first = job.pending ? within.least : std::min(within.least, has);
    const auto last = job.pending ? within.most : std::max(within.most, has);
    for (auto gpus = first; gpus <= last; ++gpus) {
        const bool present = !job.pending && gpus == has;
        if (!present && (gpus < within.least || gpus > within.most))
            continue;
        const bool ends = gpus == within.least || gpus == within.most;
        const bool faster = present || ends || out.empty() ||
                            ranks_on_the_busiest(ranks, gpus) < ranks_on_the_busiest(ranks, gpus - 1);
        const auto block = present ? own_block : block_of(job, gpus);
        if (!present && !slurm::check_memory(gpus, note, job.wishes.memory))
            continue;
        if (!present && (!faster || block == 0 || !slurm::with_gpus(job.wishes.gpus, gpus)))
            continue;
        const auto speed = speed_of(ranks, gpus, last);
        // Of two that are as fast the smaller one, and the one that it has.
        if (!out.empty() && out.back().speed >= speed && !present)
            continue;
        while (present && !out.empty() && out.back().speed >= speed)
            out.pop_back();
        out.push_back({.gpus = gpus, .block = block, .speed = speed});
    }
    if (out.empty())
        return {{.gpus = has, .block = own_block, .speed = policy::kOne}};
    thin_out(out, has);
    // Relative to the largest that there is.
    const auto full = out.back().speed;
    for (auto &size : out)
        size.speed = size.speed * policy::kOne / full;
    speeds.correct(out);
    return out;
}

std::int32_t site_factor_of(const policy::Job &job, const policy::Rules &rules, std::int64_t weight) {
    constexpr std::int64_t kSteps = 10;
    const auto above_basic =
        static_cast<std::int64_t>(policy::Tier::kBasic) - static_cast<std::int64_t>(job.tier);
    const auto guarantee = rules.of(job.tier).guarantee;
    const auto missing = std::max<policy::Fraction>(
        0, guarantee - std::min(policy::Ledger::fraction(job.work, job.elapsed),
                                policy::Ledger::fraction(job.hour_work, job.hour_elapsed)));
    return static_cast<std::int32_t>((weight * above_basic) +
                                     (weight / 2 * (missing * kSteps / policy::kOne) / kSteps));
}

bool is_movable(const slurm::Job &job) {
    const auto note = slurm::Note::parse(job.admin_comment);
    return job.running && job.batch && !job.part && job.may_requeue && job.fate == slurm::Fate::kStays &&
           note && note->number("ranks") && note->get("unsavable").empty() && range_of(job);
}

} // namespace singularity::planner
