// SPDX-License-Identifier: GPL-2.0-or-later
// Slurm's lists of generic resources.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::slurm {

// Of all types: 3 in "gpu:a100:2,gpu:1,nic:4", as job_info_t has it in gres_total; with (IDX:0-1) of a node,
// or (S:0). Nothing: it is no such list.
[[nodiscard]] std::optional<std::uint32_t> gpus_of(std::string_view gres);

// Their types, each once: a100 and h100 in "gpu:a100:2,gpu:h100:4(S:1),gpu:1".
[[nodiscard]] std::vector<std::string> gpu_types_of(std::string_view gres);

// What a job has asked for, as job_info_t has it: "gres/gpu:8", before 23.02 "gres:gpu:8", perhaps among
// others.
struct GpuWish {
    std::string per_job;
    std::string per_node;
    std::string per_socket;
    std::string per_task;
    std::uint32_t nodes = 0;
    friend bool operator==(const GpuWish &, const GpuWish &) = default;
};

// How many that is in all; 0: none, or by socket, which nobody knows beforehand.
[[nodiscard]] std::uint32_t gpus_wished(const GpuWish &wish, std::uint32_t tasks);
// The types that it names, each once; none: any will do.
[[nodiscard]] std::vector<std::string> gpu_types_wished(const GpuWish &wish);

// How the same job asks for so many GPUs in all. Only what must change is filled in; an empty text
// takes a wish away. An error, in the user's words: it cannot.
struct GpuChange {
    std::optional<std::string> per_job = std::nullopt;
    std::optional<std::string> per_node = std::nullopt;
    std::optional<std::string> per_task = std::nullopt;
    friend bool operator==(const GpuChange &, const GpuChange &) = default;
};
[[nodiscard]] Expected<GpuChange> with_gpus(const GpuWish &wish, std::uint32_t gpus);

} // namespace singularity::slurm
