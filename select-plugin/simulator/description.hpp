// SPDX-License-Identifier: GPL-2.0-or-later
// The simulated cluster and everything assumed about it, from a file with the sections of docs/simulator.md.
#pragma once

#include "common/error.hpp"
#include "units.hpp"
#include "value_types.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::simulator {

struct Description {
    Description(); // the defaults of the table in description.cpp

    struct Cluster {
        std::int64_t nodes{}; // 0: as many as give `share_of_peak` of the trace's peak demand
        double share_of_peak{};
        std::int64_t gpus_per_node{};
        std::int64_t nodes_per_switch{}; // the level below which a job's nodes are close
    } cluster;

    struct Tiers {
        Shares mix{};                       // share of the jobs, by count; sums to 1
        std::chrono::milliseconds window{}; // a job that is shorter is judged by all of it: statistics.hpp
    } tiers;

    struct Elastic {
        double share{};                    // of the jobs of several GPUs that may be resized
        std::int64_t most_ranks_per_gpu{}; // a job's least size is its demand divided by this
        double splice_overhead{};          // of the time, when a GPU runs more than one rank
    } elastic;

    // facts of the machines from which the times of a move follow: costs.hpp
    struct Costs {
        double device_gib_per_gpu{};
        double host_gib_per_rank{};
        std::int64_t replicas_per_image{};
        double save_gib_per_second{};
        double restore_gib_per_second{};
        double transfer_gib_per_second{};
        std::chrono::milliseconds checkpoint_fixed{};
        std::chrono::milliseconds restore_fixed{};
        std::chrono::milliseconds periodic_checkpoint{};
    } costs;

    struct Failures {
        std::chrono::milliseconds mean_time_between{}; // of one node; 0: none
        std::chrono::milliseconds repair{};
    } failures;

    struct Planning {
        std::chrono::milliseconds period{};  // the shortest time between two plans
        std::chrono::milliseconds longest{}; // without an event, while jobs wait or fall short
    } planning;

    struct Slurm {
        double time_limit_factor{};
        std::int64_t backfill_depth{};
    } slurm;

    struct Tiresias {
        std::vector<double> queue_thresholds; // GPU-seconds of attained service, ascending
    } tiresias;
};

// Errors name file, line, key, what was expected and what was found.
[[nodiscard]] Expected<Description> parse_description(std::string_view text, std::string_view file_name);
[[nodiscard]] Expected<Description> read_description(const std::filesystem::path &path);

// "30/40/30": percentages of premium, standard and basic jobs.
[[nodiscard]] Expected<Shares> parse_mix(std::string_view text);

// The description in force as the file that would set it.
[[nodiscard]] std::string to_yaml(const Description &description);

} // namespace singularity::simulator
