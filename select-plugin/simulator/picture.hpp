// SPDX-License-Identifier: GPL-2.0-or-later
// Results as pictures (SVG 1.1, no scripts, no fonts of its own).
#pragma once

#include "common/error.hpp"
#include "statistics.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace singularity::simulator {

struct Line {
    std::string name; // in the legend; empty: not there
    std::string colour;
    bool dashed = false;
    std::vector<std::pair<double, double>> points;
};

struct Panel {
    std::string title;
    std::string x_name;
    std::string y_name;
    bool logarithmic_x = false;
    double x_least = 0;
    double x_most = 1;
    double y_least = 0;
    double y_most = 1;
    std::vector<Line> lines{}; // NOLINT(readability-redundant-member-init): GCC warns without
};

// The panels beside each other.
[[nodiscard]] std::string svg_of(std::span<const Panel> panels);

// A distribution as at most a few hundred steps: (value, share of the values not above it). Values ascend.
[[nodiscard]] std::vector<std::pair<double, double>> cumulative(const std::vector<double> &values);

[[nodiscard]] std::string utilisation_picture(std::span<const Statistics> results);
[[nodiscard]] std::string completion_picture(std::span<const Statistics> results);
[[nodiscard]] std::string fraction_picture(std::span<const Statistics> results);

// utilisation.svg, completion.svg and fraction.svg in the folder, which is made if it is not there.
[[nodiscard]] Expected<void> write_pictures(const std::filesystem::path &folder,
                                            std::span<const Statistics> results);

// The whole text, or an error; an existing file is replaced.
[[nodiscard]] Expected<void> write_file(const std::filesystem::path &path, const std::string &text);

} // namespace singularity::simulator
