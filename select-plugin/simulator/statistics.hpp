// SPDX-License-Identifier: GPL-2.0-or-later
// What became of the jobs and of the GPU time, in numbers.
#pragma once

#include "units.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace singularity::simulator {

class World;

struct Distribution {
    double mean = 0;
    double p50 = 0;
    double p99 = 0;
};

// Nearest rank; all 0 of nothing. Sorts the values.
[[nodiscard]] Distribution distribution_of(std::vector<double> &values);

struct TierStatistics {
    std::uint64_t jobs = 0; // that finished
    double guarantee = 0;
    // Share of the finished jobs whose GPU fraction over their life (duration / (end - submission)) is not
    // below the guarantee.
    double met = 0;
    // The same by work: jobs weighted with their GPU time at full size.
    double met_by_work = 0;
    // The same where the guarantee is held against at least the window: a job may lose (1 - guarantee) x
    // window however short it is, for a promise about every hour says nothing about less than an hour.
    double met_in_window = 0;
    double mean_fraction = 0;
    Distribution queueing;         // s: from submission to the first GPU
    Distribution completion;       // s: from submission to the end
    double moves_per_job_hour = 0; // of holding GPUs
    double kills_per_job_hour = 0;
    std::vector<double> fractions; // of every finished job, ascending
};

// GPU hours. total = down + idle + held + releasing; held = useful + lost_moving + lost_splicing +
// lost_again.
struct GpuTime {
    double total = 0;
    double down = 0;
    double idle = 0;
    double held = 0;
    double releasing = 0; // checkpoints that still read GPUs which nobody held
    double useful = 0;
    double lost_moving = 0;
    double lost_splicing = 0;
    double lost_again = 0;
};

struct Statistics {
    std::string policy;
    std::int64_t gpus = 0;
    std::int32_t nodes = 0;
    std::uint64_t finished = 0;
    std::uint64_t rejected = 0;   // too large for the cluster
    std::uint64_t unfinished = 0; // never got what they need
    std::array<TierStatistics, kTiers> tiers;
    TierStatistics all; // of which the guarantee is each job's own
    GpuTime time;
    double utilisation = 0; // held / up, while jobs were submitted
    double utilisation_of_bound =
        0;                   // held / min(up, demand of the jobs in the system), while jobs were submitted
    double useful_share = 0; // useful / held
    double makespan_hours = 0;
    std::uint64_t node_failures = 0;
    std::uint64_t plans = 0;
    double seconds = 0; // of computing; in no file that must be the same again

    // Series for the pictures: means over steps of this many hours.
    double step_hours = 0;
    std::vector<double> held_series;
    std::vector<double> demand_series;
    std::vector<double> up_series;
    std::vector<double> completions; // s, ascending
};

[[nodiscard]] Statistics statistics_of(const World &world, std::string policy,
                                       const std::array<double, kTiers> &guarantees);

} // namespace singularity::simulator
