// SPDX-License-Identifier: GPL-2.0-or-later
// Small clusters and traces for the simulator's tests.
#pragma once

#include "cmocka.hpp"
#include "common/config.hpp"
#include "description.hpp"
#include "simulation.hpp"
#include "trace.hpp"
#include "world.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::test {

inline simulator::Description description(std::string_view text) {
    auto description = simulator::parse_description(text, "test.yaml");
    if (!description)
        fail(description.error().message());
    return *description;
}

// Times of moves that are easy to add up: 10 s to save, 20 s to restore, whatever the size. No failures, no
// overhead.
inline constexpr std::string_view kPlain = R"(
cluster: {nodes: 1, gpus_per_node: 8}
elastic: {splice_overhead: 0}
costs: {device_gib_per_gpu: 0, host_gib_per_rank: 0, checkpoint_fixed: 10s, restore_fixed: 20s}
failures: {mean_time_between: 0s}
planning: {period: 0s, longest: 1m}
slurm: {time_limit_factor: 1}
tiresias: {queue_thresholds: "800"}
)";

inline simulator::TraceJob job(std::int64_t id, std::int64_t submit, std::int32_t gpus, std::int64_t seconds,
                               simulator::Tier tier) {
    return {id, submit * simulator::kSecond, seconds * simulator::kSecond, gpus, tier};
}

inline const simulator::PolicyName &policy_named(std::string_view name) {
    for (const auto &policy : simulator::policies()) {
        if (policy.name == name)
            return policy;
    }
    fail("no policy " + std::string(name));
}

inline policy::Rules default_rules() { return policy::rules_of(Config()); }

// What became of the jobs, in the order of the trace.
inline std::vector<simulator::Job>
simulated(std::string_view text, const std::vector<simulator::TraceJob> &trace, std::string_view policy) {
    simulator::World world(description(text), trace, 1);
    const auto scheduler = policy_named(policy).make(default_rules());
    world.run(*scheduler);
    return world.jobs();
}

inline void expect_seconds(double found, double expected, const char *file = __builtin_FILE(),
                           int line = __builtin_LINE()) {
    if (found < expected - 0.0021 || found > expected + 0.0021)
        fail("found " + std::to_string(found) + " s, expected " + std::to_string(expected) + " s", file,
             line);
}

inline double end_of(const simulator::Job &job) { return static_cast<double>(job.end) / simulator::kSecond; }

} // namespace singularity::test
