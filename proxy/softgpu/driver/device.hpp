// SPDX-License-Identifier: GPL-2.0-or-later
// A device: who it is, what it can, its memory, its primary context.
#pragma once

#include "driver/config.hpp"
#include "driver/mapping.hpp"
#include "driver/result.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace singularity::softgpu::driver {

class Context;

inline constexpr std::uint32_t kMultiprocessors = 16;
inline constexpr std::uint32_t kWarp = 32;
inline constexpr std::uint32_t kBlockThreads = 1024;
inline constexpr std::uint32_t kMultiprocessorThreads = 2048;
inline constexpr std::uint32_t kMultiprocessorBlocks = 32;
inline constexpr std::uint32_t kRegisters = 65536;
inline constexpr std::uint32_t kSharedDefault = 48 * 1024;
inline constexpr std::uint32_t kSharedOptIn = 227 * 1024;
inline constexpr std::uint32_t kSharedMultiprocessor = 228 * 1024;
inline constexpr std::uint32_t kSharedReserved = 1024;
inline constexpr std::uint32_t kPitchAlignment = 512;

struct PciAddress {
    int domain = 0;
    int bus = 0;
    int device = 0;
};

// As the ordinal in the machine says it: constant, whatever CUDA_VISIBLE_DEVICES hides.
[[nodiscard]] CUuuid device_uuid(unsigned physical);
[[nodiscard]] std::string uuid_text(const CUuuid &uuid);
[[nodiscard]] PciAddress device_pci(unsigned physical);

class Device {
  public:
    Device(unsigned ordinal, unsigned physical, const Config &config);

    [[nodiscard]] unsigned ordinal() const { return ordinal_; }
    [[nodiscard]] const std::string &name() const { return name_; }
    [[nodiscard]] const CUuuid &uuid() const { return uuid_; }
    [[nodiscard]] const PciAddress &pci() const { return pci_; }
    [[nodiscard]] std::string pci_text() const;
    [[nodiscard]] ComputeCapability capability() const { return capability_; }
    [[nodiscard]] Account &memory() { return memory_; }
    [[nodiscard]] PhysicalMemory &physical() { return physical_; }
    [[nodiscard]] std::optional<int> attribute(CUdevice_attribute attribute) const;
    // As by an uncorrectable error of its memory, where the configuration says so.
    [[nodiscard]] bool has_failed() const;

    struct Primary {
        std::mutex mutex;
        std::shared_ptr<Context> context; // its handle never changes; a new one, not active, after each end
        std::uint64_t retained = 0;
        unsigned flags = 0;
    };
    [[nodiscard]] Primary &primary() { return primary_; }

    struct Pools {
        std::mutex mutex;
        CUmemoryPool by_default = nullptr; // made when first asked for
        CUmemoryPool current = nullptr;
    };
    [[nodiscard]] Pools &pools() { return pools_; }

    // Memory of graphs.
    struct GraphMemory {
        std::atomic<std::uint64_t> used{0};
        std::atomic<std::uint64_t> used_high{0};
    };
    [[nodiscard]] GraphMemory &graph_memory() { return graph_memory_; }

  private:
    unsigned ordinal_;
    std::string fault_file_; // empty: it never fails
    std::string name_;
    CUuuid uuid_;
    PciAddress pci_;
    ComputeCapability capability_;
    Account memory_;
    PhysicalMemory physical_;
    Primary primary_;
    Pools pools_;
    GraphMemory graph_memory_;
};

} // namespace singularity::softgpu::driver
