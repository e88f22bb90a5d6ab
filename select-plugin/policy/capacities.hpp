// SPDX-License-Identifier: GPL-2.0-or-later
// How many blocks of each size there are on the nodes of each kind.
#pragma once

#include "select-plugin/policy/snapshot.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::policy {

class Capacities {
  public:
    // Of nothing.
    void reset(std::size_t kinds, std::size_t sizes) {
        sizes_ = sizes;
        kinds_ = kinds;
        counts_.assign(kinds * sizes, 0);
    }

    // A node of the kind, into which so many blocks of each size fit.
    void add(std::uint32_t kind, std::span<const std::uint32_t> fit) {
        for (std::size_t index = 0; index < sizes_; ++index)
            counts_[(kind * sizes_) + index] += fit[index];
    }
    // Into one of the kind fit as many as `has` says, no longer as many as `had` does.
    void change(std::uint32_t kind, std::span<const std::uint32_t> had, std::span<const std::uint32_t> has) {
        for (std::size_t index = 0; index < sizes_; ++index) {
            auto &count = counts_[(kind * sizes_) + index];
            count = count + has[index] - had[index];
        }
    }

    // Of the size with that index, on all nodes of these kinds.
    [[nodiscard]] std::uint64_t of(Kinds kinds, std::size_t index) const {
        std::uint64_t sum = 0;
        for (std::uint32_t kind = 0; kind < kinds_; ++kind)
            sum += is_among(kind, kinds) ? counts_[(kind * sizes_) + index] : 0;
        return sum;
    }

  private:
    std::size_t kinds_ = 0;
    std::size_t sizes_ = 0;
    std::vector<std::uint64_t> counts_; // by kind, then by size
};

} // namespace singularity::policy
