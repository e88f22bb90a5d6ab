// SPDX-License-Identifier: GPL-2.0-or-later
#include "costs.hpp"

#include <algorithm>
#include <cmath>

namespace singularity::simulator {
namespace {

std::int32_t quotient_up(std::int32_t a, std::int32_t b) { return (a + b - 1) / b; }

Time milliseconds(double seconds) { return static_cast<Time>(std::llround(seconds * 1000)); }

} // namespace

double Costs::speed(std::int32_t demand, std::int32_t gpus) const {
    if (gpus >= demand)
        return 1;
    return (1 - elastic_.splice_overhead) / quotient_up(demand, gpus);
}

std::int32_t Costs::minimum(std::int32_t demand) const {
    return quotient_up(
        demand, static_cast<std::int32_t>(std::min<std::int64_t>(elastic_.most_ranks_per_gpu, demand)));
}

std::int32_t Costs::useful_size(std::int32_t demand, std::int32_t gpus, std::int32_t minimum) {
    if (gpus >= demand)
        return demand;
    if (gpus < minimum || gpus < 1)
        return 0;
    return std::max(minimum, quotient_up(demand, quotient_up(demand, gpus)));
}

std::int32_t Costs::next_size(std::int32_t demand, std::int32_t gpus) {
    const std::int32_t ranks = quotient_up(demand, gpus);
    return ranks <= 1 ? demand : quotient_up(demand, ranks - 1);
}

double Costs::transfer_seconds(std::int32_t demand, std::int32_t gpus) const {
    const double device =
        costs_.device_gib_per_gpu * std::ceil(demand / static_cast<double>(costs_.replicas_per_image));
    const double host = costs_.host_gib_per_rank * demand;
    return (device + host) / quotient_up(gpus, gpus_per_node_) / costs_.transfer_gib_per_second;
}

Time Costs::checkpoint(std::int32_t demand, std::int32_t gpus) const {
    return costs_.checkpoint_fixed.count() +
           milliseconds((costs_.device_gib_per_gpu / costs_.save_gib_per_second) +
                        transfer_seconds(demand, gpus));
}

Time Costs::restore(std::int32_t demand, std::int32_t gpus) const {
    return costs_.restore_fixed.count() +
           milliseconds((costs_.device_gib_per_gpu / costs_.restore_gib_per_second) +
                        transfer_seconds(demand, gpus));
}

} // namespace singularity::simulator
