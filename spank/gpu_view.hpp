// SPDX-License-Identifier: GPL-2.0-or-later
// How many GPUs a job was submitted with, beside how many it has. Tasks that begin where there are fewer see
// virtual devices as if all were there: what they see never changes afterwards. The wrapper of a batch script
// writes it to the script's environment, from where it comes to tasks; no other program needs to read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace singularity::spank {

inline constexpr const char *kGpuViewVariable = "SLURM_SINGULARITY_GPUS";

// GPUs of the whole job.
struct GpuView {
    std::uint32_t requested = 0;
    std::uint32_t now = 0;
    std::uint32_t per_task =
        0; // requested for each task, which sees only its own; 0: tasks see all of a node
    friend bool operator==(const GpuView &, const GpuView &) = default;
};

// "8:2:1"
[[nodiscard]] std::string to_string(const GpuView &view);
// Nothing: it is not such a text.
[[nodiscard]] std::optional<GpuView> gpu_view_of(std::string_view text);

} // namespace singularity::spank
