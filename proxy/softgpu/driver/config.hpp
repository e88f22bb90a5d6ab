// SPDX-License-Identifier: GPL-2.0-or-later
// What the software GPU pretends to be: from SINGULARITY_SOFTGPU_* of the environment, over the file that
// SINGULARITY_SOFTGPU_CONFIG names, over the defaults of the table in config.cpp.
#pragma once

#include "common/error.hpp"
#include "engine/engine.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::softgpu::driver {

struct ComputeCapability {
    unsigned major = 0;
    unsigned minor = 0;
    bool operator==(const ComputeCapability &) const = default;
    [[nodiscard]] std::uint32_t sm() const { return (major * 10) + minor; }
};

// Who chooses where device memory lies: this driver, in an area of its own, or mmap(2), as NVIDIA's does.
enum class Addresses : std::uint8_t { own, system };

struct Config {
    std::int64_t devices = 0;
    std::uint64_t memory = 0; // bytes of each device
    std::string name;
    ComputeCapability compute_capability;
    CompilerMode compiler = CompilerMode::interpreter;
    Addresses addresses = Addresses::own;
    std::string fault_file;   // a device fails once there is a file "NAME.ORDINAL"; empty: none does
    std::int64_t threads = 0; // that run blocks; 0: as many as the process may run on
    // Contexts made by cuCtxCreate do not see each other's pinned, managed and mapped memory. For a process
    // in which each context belongs to somebody else; not what NVIDIA's driver does.

    bool operator==(const Config &) const = default;
};

using Environment = std::function<const char *(const char *name)>; // getenv

[[nodiscard]] Expected<Config> read_config(const Environment &environment);

// Ordinals that CUDA_VISIBLE_DEVICES leaves, in its order; `uuids` of all devices as "GPU-...". As NVIDIA's
// driver reads it: the first entry that names no device ends the list; an entry named twice makes it empty.
[[nodiscard]] std::vector<unsigned> visible_devices(const char *list, const std::vector<std::string> &uuids);

} // namespace singularity::softgpu::driver
