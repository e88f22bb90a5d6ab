// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/config.hpp"
#include "select-plugin/policy/tier.hpp"

namespace singularity::policy {
namespace {

TierRules rules_of(const Config::Tier &tier) {
    return {.guarantee = tier.guarantee_percent * (kOne / 100),
            .moves_per_hour = static_cast<std::uint32_t>(tier.moves_per_hour),
            .least_run = tier.least_run.count()};
}

} // namespace

Rules rules_of(const Config &config) {
    return {.tiers = {rules_of(config.premium), rules_of(config.standard), rules_of(config.basic)},
            .horizon = config.planner.horizon.count(),
            .margin = config.planner.margin_percent * (kOne / 100),
            .payback = config.planner.payback.count(),
            .service_quantum = config.planner.service_quantum.count(),
            .strict_tiers = config.planner.strict_tiers};
}

} // namespace singularity::policy
