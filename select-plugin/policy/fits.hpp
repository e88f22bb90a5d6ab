// SPDX-License-Identifier: GPL-2.0-or-later
// How many blocks of each size fit into so many GPUs of a node. Looked up: a plan asks for every node and
// every size, and would spend half of its time on dividing.
#pragma once

#include "select-plugin/policy/snapshot.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::policy {

class Fits {
  public:
    void reset(std::span<const std::uint32_t> blocks) {
        sizes_ = blocks.size();
        table_.resize((kMostGpusOfNode + 1) * sizes_);
        for (std::uint32_t gpus = 0; gpus <= kMostGpusOfNode; ++gpus)
            for (std::size_t index = 0; index < sizes_; ++index)
                table_[(gpus * sizes_) + index] = gpus / blocks[index];
    }

    // In the order of the sizes; gpus: at most kMostGpusOfNode.
    [[nodiscard]] std::span<const std::uint32_t> of(std::uint32_t gpus) const {
        return std::span(table_).subspan(gpus * sizes_, sizes_);
    }

  private:
    std::size_t sizes_ = 0;
    std::vector<std::uint32_t> table_; // by GPUs, then by size
};

} // namespace singularity::policy
