// SPDX-License-Identifier: GPL-2.0-or-later
// One trace, one cluster, one policy: from names to numbers. The policies by name are here.
#pragma once

#include "description.hpp"
#include "scheduler.hpp"
#include "select-plugin/policy/tier.hpp"
#include "statistics.hpp"
#include "trace.hpp"
#include "units.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace singularity::simulator {

struct PolicyName {
    std::string_view name;
    std::string_view what;
    std::unique_ptr<Scheduler> (*make)(const policy::Rules &rules);
};
// In the order in which they are shown; the first is this project's.
[[nodiscard]] std::span<const PolicyName> policies();

struct Setting {
    Description description;
    policy::Rules rules;
    std::uint64_t seed = 1;
};

[[nodiscard]] Statistics simulate(const Setting &setting, std::span<const TraceJob> trace,
                                  const PolicyName &policy, const std::function<void(double)> &progress = {});

} // namespace singularity::simulator
