// SPDX-License-Identifier: GPL-2.0-or-later
#include "simulation.hpp"

#include "elastic_fair.hpp"
#include "sla.hpp"
#include "slurm_like.hpp"
#include "tiresias.hpp"
#include "world.hpp"

#include <array>
#include <chrono>
#include <string>

namespace singularity::simulator {
namespace {

template <class T>
std::unique_ptr<Scheduler> make(const policy::Rules & /*rules*/) {
    return std::make_unique<T>();
}

std::unique_ptr<Scheduler> make_sla(const policy::Rules &rules) { return std::make_unique<Sla>(rules); }

constexpr std::array<PolicyName, 4> kPolicies{{
    {"singularity", "this project's: guarantees by tier, elastic, preempts without loss", make_sla},
    {"slurm", "priority, EASY backfill, preemption that loses work since the last hourly checkpoint",
     make<SlurmLike>},
    {"tiresias", "discretised least attained service, preempts without loss, no tiers", make<Tiresias>},
    {"elastic", "elastic in the order of submission, no tiers, no preemption", make<ElasticFair>},
}};

} // namespace

std::span<const PolicyName> policies() { return kPolicies; }

Statistics simulate(const Setting &setting, std::span<const TraceJob> trace, const PolicyName &policy,
                    const std::function<void(double)> &progress) {
    const auto begin = std::chrono::steady_clock::now();
    World world(setting.description, trace, setting.seed);
    const auto scheduler = policy.make(setting.rules);
    world.run(*scheduler, progress);
    std::array<double, kTiers> guarantees{};
    for (std::size_t tier = 0; tier < kTiers; ++tier)
        guarantees[tier] =
            static_cast<double>(setting.rules.tiers[tier].guarantee) / static_cast<double>(policy::kOne);
    Statistics statistics = statistics_of(world, std::string(policy.name), guarantees);
    statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return statistics;
}

} // namespace singularity::simulator
