// SPDX-License-Identifier: GPL-2.0-or-later
// Whether a gang would fit if some jobs gave their GPUs back, and which of them are enough.
#pragma once

#include "pool.hpp"
#include "units.hpp"

#include <cstdint>
#include <ranges>
#include <unordered_map>
#include <vector>

namespace singularity::simulator {

class WhatIf {
  public:
    WhatIf(const Pool &pool, std::int32_t gpus)
        : pool_(pool), block_(pool.block_of(gpus)), missing_((gpus / block_) - pool.blocks(block_)) {}

    [[nodiscard]] bool fits() const { return missing_ <= 0; }

    // The job would give its GPUs back.
    void add(JobIndex job, const Placement &placement) {
        change(placement, 1);
        victims_.push_back({job, &placement});
    }

    // Those added, without the ones that are not needed (the last ones added go first). Call once, when it
    // fits.
    [[nodiscard]] std::vector<JobIndex> victims() {
        std::vector<JobIndex> needed;
        for (const Victim &victim : std::ranges::reverse_view(victims_)) {
            change(*victim.placement, -1);
            if (fits())
                continue;
            change(*victim.placement, 1);
            needed.push_back(victim.job);
        }
        return needed;
    }

  private:
    struct Victim {
        JobIndex job;
        const Placement *placement;
    };

    void change(const Placement &placement, std::int32_t sign) {
        for (const Share &share : placement) {
            std::int32_t &more = more_[share.node];
            const std::int32_t free = pool_.free_on(share.node);
            missing_ += (free + more) / block_;
            more += sign * share.gpus;
            missing_ -= (free + more) / block_;
        }
    }

    const Pool &pool_;
    std::int32_t block_;
    std::int64_t missing_;
    std::unordered_map<std::int32_t, std::int32_t> more_; // looked up only, never walked
    std::vector<Victim> victims_;
};

} // namespace singularity::simulator
