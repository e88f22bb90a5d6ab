// SPDX-License-Identifier: GPL-2.0-or-later
// Where the parts of the proxy lie.
#pragma once

#include "common/error.hpp"

#include <filesystem>

namespace singularity::launcher {

// What is installed where, below library_directory().
struct Installation {
    std::filesystem::path directory;
    [[nodiscard]] std::filesystem::path proxyd() const { return directory / "singularity-proxyd"; }
    [[nodiscard]] std::filesystem::path client() const { return directory / "client" / "libcuda.so.1"; }
    [[nodiscard]] std::filesystem::path nvml() const { return directory / "client" / "libnvidia-ml.so.1"; }
    [[nodiscard]] std::filesystem::path nccl() const { return directory / "client" / "libnccl.so.2"; }
    [[nodiscard]] std::filesystem::path redirect() const { return directory / "libsingularity-redirect.so"; }
    [[nodiscard]] std::filesystem::path software_gpu() const {
        return directory / "softgpu" / "libcuda.so.1";
    }
};
// The error names the first file that is missing.
[[nodiscard]] Expected<Installation> find_installation();

} // namespace singularity::launcher
