// SPDX-License-Identifier: GPL-2.0-or-later
#include "value_types.hpp"

#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace singularity::simulator {
namespace {

std::optional<double> decimal(std::string_view text) {
    double value = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
    if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
        return std::nullopt;
    return value;
}

std::optional<std::vector<double>> decimals(std::string_view text, char separator) {
    std::vector<double> values;
    for (std::size_t begin = 0;;) {
        const auto end = text.find(separator, begin);
        const auto value = decimal(text.substr(begin, end - begin));
        if (!value)
            return std::nullopt;
        values.push_back(*value);
        if (end == std::string_view::npos)
            return values;
        begin = end + 1;
    }
}

} // namespace

std::string expected(const Decimal &type) {
    return fmt::format("a decimal number from {} to {}", type.least, type.most);
}

std::optional<double> value_of(const Decimal &type, const settings::Scalar &scalar) {
    const auto value = scalar.quoted ? std::nullopt : decimal(scalar.text);
    return value && *value >= type.least && *value <= type.most ? value : std::nullopt;
}

std::string to_yaml(const Decimal & /*type*/, double value) { return fmt::format("{}", value); }

std::string expected(const PerTier & /*type*/) {
    return "three percentages of premium, standard and basic jobs that sum to 100, as in 30/40/30";
}

std::optional<Shares> value_of(const PerTier & /*type*/, const settings::Scalar &scalar) {
    const auto values = decimals(scalar.text, '/');
    if (!values || values->size() != kTiers)
        return std::nullopt;
    Shares shares{};
    double sum = 0;
    for (std::size_t i = 0; i < kTiers; ++i) {
        shares[i] = (*values)[i] / 100;
        if (shares[i] < 0 || shares[i] > 1)
            return std::nullopt;
        sum += shares[i];
    }
    if (std::abs(sum - 1) > 1e-9)
        return std::nullopt;
    return shares;
}

std::string to_yaml(const PerTier & /*type*/, const Shares &value) {
    return fmt::format("{:g}/{:g}/{:g}", value[0] * 100, value[1] * 100, value[2] * 100);
}

std::string expected(const Thresholds & /*type*/) {
    return "ascending positive numbers of GPU-seconds separated by commas, as in \"3250,7200\"";
}

std::optional<std::vector<double>> value_of(const Thresholds & /*type*/, const settings::Scalar &scalar) {
    auto values = decimals(scalar.text, ',');
    if (!values)
        return std::nullopt;
    double last = 0;
    for (const double value : *values) {
        if (value <= last)
            return std::nullopt;
        last = value;
    }
    return values;
}

std::string to_yaml(const Thresholds & /*type*/, const std::vector<double> &value) {
    return fmt::format("\"{}\"", fmt::join(value, ","));
}

} // namespace singularity::simulator
