// SPDX-License-Identifier: GPL-2.0-or-later
// How fast a job runs on so many GPUs, and how long it stands still when it is moved. Seconds from bytes and
// bandwidths, so that a site can put in what it measured.
#pragma once

#include "description.hpp"
#include "units.hpp"

#include <cstdint>

namespace singularity::simulator {

class Costs {
  public:
    explicit Costs(const Description &description)
        : costs_(description.costs), elastic_(description.elastic),
          gpus_per_node_(static_cast<std::int32_t>(description.cluster.gpus_per_node)) {}

    // Work per time relative to the full size, 0 to 1. The slowest GPU decides: with 8 ranks on 5 GPUs one
    // GPU runs two of them, so 5 GPUs are no faster than 4.
    [[nodiscard]] double speed(std::int32_t demand, std::int32_t gpus) const;

    // The fewest GPUs a resizable job runs on.
    [[nodiscard]] std::int32_t minimum(std::int32_t demand) const;

    // The largest size up to `gpus` that is faster than the next smaller one; 0 if that is below the minimum.
    [[nodiscard]] static std::int32_t useful_size(std::int32_t demand, std::int32_t gpus,
                                                  std::int32_t minimum);
    // The next size above `gpus` that is faster; `demand` at most.
    [[nodiscard]] static std::int32_t next_size(std::int32_t demand, std::int32_t gpus);

    // From the order to stop to the release of the GPUs: barrier, device images, host images, images in the
    // store.
    [[nodiscard]] Time checkpoint(std::int32_t demand, std::int32_t gpus) const;
    // From the allocation to the next step of the program: images from the store, host images, device images.
    [[nodiscard]] Time restore(std::int32_t demand, std::int32_t gpus) const;
    // The most work, in time at full size, that is lost with a node.
    [[nodiscard]] Time checkpoint_interval() const { return costs_.periodic_checkpoint.count(); }

  private:
    // Every node sends and receives its part of the images at the same time.
    [[nodiscard]] double transfer_seconds(std::int32_t demand, std::int32_t gpus) const;

    Description::Costs costs_;
    Description::Elastic elastic_;
    std::int32_t gpus_per_node_;
};

} // namespace singularity::simulator
