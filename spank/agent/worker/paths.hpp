// SPDX-License-Identifier: GPL-2.0-or-later
// Where the agent's parts and its nodes' files lie.
#pragma once

#include <chrono>
#include <filesystem>

namespace singularity::agent {

struct Libraries {
    std::filesystem::path directory;
    std::filesystem::path nccl; // NVIDIA's; empty: none
    [[nodiscard]] std::filesystem::path init() const { return directory / "singularity-init"; }
    [[nodiscard]] std::filesystem::path worker() const { return directory / "singularity-worker"; }
    [[nodiscard]] std::filesystem::path task() const { return directory / "singularity-task"; }
    [[nodiscard]] std::filesystem::path stand_in() const { return directory / "singularity-command"; }
    [[nodiscard]] std::filesystem::path slurm() const { return directory / "singularity-slurm"; }
    [[nodiscard]] std::filesystem::path network() const { return directory / "singularity-network"; }
    [[nodiscard]] std::filesystem::path proxyd() const { return directory / "singularity-proxyd"; }
    [[nodiscard]] std::filesystem::path client() const { return directory / "client"; }
    [[nodiscard]] std::filesystem::path redirect() const { return directory / "libsingularity-redirect.so"; }
    [[nodiscard]] std::filesystem::path software_gpu() const {
        return directory / "softgpu" / "libcuda.so.1";
    }
};

struct Paths {
    Libraries libraries;
    std::filesystem::path state;   // the nodes' rooms
    std::filesystem::path staging; // images of nodes on their way to and from the store; root's alone
    // elastic.gpu_turn of singularity.yaml; 0: as device proxies have it by themselves
    std::chrono::milliseconds gpu_turn{};
};

} // namespace singularity::agent
