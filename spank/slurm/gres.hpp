// SPDX-License-Identifier: GPL-2.0-or-later
// Slurm's lists of generic resources.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace singularity::slurm {

// Of all types: 3 in "gpu:a100:2,gpu:1,nic:4", as job_info_t has it in gres_total. Nothing: it is no such
// list.
[[nodiscard]] std::optional<std::uint32_t> gpus_of(std::string_view gres);

} // namespace singularity::slurm
