// SPDX-License-Identifier: GPL-2.0-or-later
// The part of NVML's interface that is answered here. Names, numbers and layouts are NVML's own (documented
// in NVIDIA's "NVML API Reference Guide"); the header is not part of the CUDA Toolkit's minimal installation.
#pragma once

#include <array>
#include <cstdint>

namespace singularity::nvml {

enum class Return : std::uint32_t { // NOLINT(performance-enum-size): an int of the C interface
    success = 0,
    uninitialized = 1,
    invalid_argument = 2,
    not_supported = 3,
    not_found = 6,
    insufficient_size = 7,
    driver_not_loaded = 9,
    argument_version_mismatch = 25,
};

struct Device; // nvmlDevice_t points to one

// nvmlPciInfo_t
struct PciInfo {
    std::array<char, 16> bus_id_legacy;
    std::uint32_t domain;
    std::uint32_t bus;
    std::uint32_t device;
    std::uint32_t pci_device_id;
    std::uint32_t pci_subsystem_id;
    std::array<char, 32> bus_id;
};
static_assert(sizeof(PciInfo) == 68);

// nvmlMemory_t; bytes
struct Memory {
    std::uint64_t total;
    std::uint64_t free;
    std::uint64_t used;
};

// nvmlMemory_v2_t; bytes
struct MemoryV2 {
    std::uint32_t version;
    std::uint64_t total;
    std::uint64_t reserved;
    std::uint64_t free;
    std::uint64_t used;
};
inline constexpr std::uint32_t kMemoryV2Version = sizeof(MemoryV2) | (2U << 24);

} // namespace singularity::nvml
