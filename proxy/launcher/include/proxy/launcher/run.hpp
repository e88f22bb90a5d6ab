// SPDX-License-Identifier: GPL-2.0-or-later
// Runs a program on proxies of its own.
#pragma once

#include "common/error.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

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

struct RunOptions {
    unsigned devices = 1; // proxies; device N of the back end each
    std::string backend;  // a driver library by path; "software"; empty: NVIDIA's if this
                          // machine has it, else the software GPU
    std::vector<std::string> proxyd_arguments; // passed on to each singularity-proxyd
    bool statistics = false;                   // one line on stderr at the end
    std::vector<std::string> command;          // program and arguments; looked up in PATH
};

// The program's exit status; 128 + N if signal N ended it. Its end, and that of every proxy, has been waited
// for. An Error: it was not started.
[[nodiscard]] Expected<int> run(const RunOptions &options);

} // namespace singularity::launcher
