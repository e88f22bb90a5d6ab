// SPDX-License-Identifier: GPL-2.0-or-later
// Handwritten digits to train on; where they come from: data/README.md.
#pragma once

#include "workload.cuh"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

constexpr int pixels = 64;
constexpr int classes = 10;

struct Digits {
    std::vector<float> images;
    std::vector<int> labels;
};

// In an order that is the same in every run; at least so many.
inline Digits read_digits(std::size_t least) {
    const char *directory = std::getenv("WORKLOADS_DATA");
    const std::string path = std::string(directory == nullptr ? WORKLOADS_DATA : directory) + "/digits.txt";
    std::ifstream file(path);
    Digits digits;
    for (std::string line; std::getline(file, line);) {
        if (line.size() != pixels + 1)
            workload::stop(path.c_str(), static_cast<int>(digits.labels.size()) + 1, "line",
                           "is not 65 letters long");
        for (int pixel = 0; pixel < pixels; ++pixel)
            digits.images.push_back(static_cast<float>(line[pixel] - 'A') / 16.0F);
        digits.labels.push_back(line[pixels] - '0');
    }
    if (digits.labels.size() < least)
        workload::stop(path.c_str(), 0, "digits", "cannot be read, or are too few");
    // Mixed: the file has one writer after another, and those at its end would be tested only.
    workload::Random random(179);
    for (std::size_t i = digits.labels.size() - 1; i > 0; --i) {
        const std::size_t other = random.below(static_cast<unsigned>(i) + 1);
        std::swap(digits.labels[i], digits.labels[other]);
        std::swap_ranges(&digits.images[i * pixels], &digits.images[i * pixels] + pixels,
                         &digits.images[other * pixels]);
    }
    return digits;
}
