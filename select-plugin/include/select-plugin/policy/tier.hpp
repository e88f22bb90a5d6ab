// SPDX-License-Identifier: GPL-2.0-or-later
// Tiers and the numbers that the policy decides by. The reasons of the defaults are in
// slurm-conf/singularity.yaml.
#pragma once

#include "select-plugin/policy/units.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace singularity {
struct Config;
}

namespace singularity::policy {

// From the one that is served first to the one that is taken from first.
enum class Tier : std::uint8_t { kPremium, kStandard, kBasic };

constexpr std::size_t kTiers = 3;

[[nodiscard]] std::string_view name_of(Tier tier);

struct TierRules {
    // The GPU fraction that is promised, over every hour and over the job's life. 0: best effort.
    Fraction guarantee = 0;
    // Actions that interrupt a running job (shrink, grow, migrate, yield) which one job may suffer in an
    // hour. Growing into idle GPUs and defragmenting leave half of it, rounded down, to the moves that
    // guarantees and draining nodes need: convenience must not use up what keeps promises.
    std::uint32_t moves_per_hour = 0;
    // A job is not interrupted before it has run this long since it last started or moved.
    Milliseconds least_run = 0;
    bool operator==(const TierRules &) const = default;
};

struct Rules {
    // Indexed by Tier.
    std::array<TierRules, kTiers> tiers{{
        {.guarantee = 950'000, .moves_per_hour = 2, .least_run = 10 * kMinute},
        {.guarantee = 700'000, .moves_per_hour = 4, .least_run = 5 * kMinute},
        {.guarantee = 0, .moves_per_hour = 12, .least_run = 1 * kMinute},
    }};
    // How far ahead a guarantee is looked after: a job needs what it must run at now to be above its
    // guarantee when this has passed. At least the time between two plans plus the time that a plan takes to
    // be carried out.
    Milliseconds horizon = 2 * kMinute;
    // Part of what lies between a guarantee and full speed that is kept in reserve: the policy looks after
    // the guarantee plus this. Without it, jobs are held just at their guarantee, and the first delay is one
    // too many.
    Fraction margin = 300'000;
    // Within this time a move that serves no guarantee must win back the work that it costs.
    Milliseconds payback = 15 * kMinute;
    // Capacity beyond the guarantees goes first to the jobs that have received least: those below this many
    // GPU milliseconds come before those below 4 times as many, and so on (discretised least attained
    // service, as in Tiresias, NSDI'19: steps, because two long jobs that take turns help nobody).
    Milliseconds service_quantum = 1 * kHour;
    // Where the guarantees exceed the cluster: a higher tier's are kept at the cost of a lower one's.
    // Otherwise nothing is taken from a job that needs it itself, and the furthest below comes first whatever
    // its tier.
    bool strict_tiers = true;
    bool operator==(const Rules &) const = default;

    // What is looked after: the guarantee and the margin; 0 without a guarantee.
    [[nodiscard]] Fraction aim_of(Tier tier) const {
        const Fraction guarantee = of(tier).guarantee;
        return guarantee == 0 ? 0 : guarantee + ((kOne - guarantee) * margin / kOne);
    }
    [[nodiscard]] const TierRules &of(Tier tier) const { return tiers[static_cast<std::size_t>(tier)]; }
};

// What singularity.yaml says.
[[nodiscard]] Rules rules_of(const Config &config);

} // namespace singularity::policy
