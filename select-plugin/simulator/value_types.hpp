// SPDX-License-Identifier: GPL-2.0-or-later
// Types of settings (common/settings.hpp) that only the simulator's description has.
#pragma once

#include "common/settings.hpp"
#include "units.hpp"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace singularity::simulator {

using Shares = std::array<double, kTiers>; // per tier, in its order

// A decimal number: 0.7, 20.
struct Decimal {
    double least;
    double most;
};
[[nodiscard]] std::string expected(const Decimal &type);
[[nodiscard]] std::optional<double> value_of(const Decimal &type, const settings::Scalar &scalar);
[[nodiscard]] std::string to_yaml(const Decimal &type, double value);

// Percentages of premium, standard and basic jobs, separated by slashes, that sum to 100: 30/40/30.
struct PerTier {};
[[nodiscard]] std::string expected(const PerTier &type);
[[nodiscard]] std::optional<Shares> value_of(const PerTier &type, const settings::Scalar &scalar);
[[nodiscard]] std::string to_yaml(const PerTier &type, const Shares &value);

// Ascending positive numbers separated by commas.
struct Thresholds {};
[[nodiscard]] std::string expected(const Thresholds &type);
[[nodiscard]] std::optional<std::vector<double>> value_of(const Thresholds &type,
                                                          const settings::Scalar &scalar);
[[nodiscard]] std::string to_yaml(const Thresholds &type, const std::vector<double> &value);

} // namespace singularity::simulator
