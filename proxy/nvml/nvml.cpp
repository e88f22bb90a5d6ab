// SPDX-License-Identifier: GPL-2.0-or-later
// The C edge. A handle is the address of a Device; every function checks that it is one of ours.
#include "abi.hpp"
#include "common/log.hpp"
#include "devices.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using singularity::nvml::Device;
using singularity::nvml::Memory;
using singularity::nvml::MemoryV2;
using singularity::nvml::PciInfo;
using singularity::nvml::Return;

namespace {

constexpr singularity::log::Channel kLog("nvml");
constexpr const char *kSockets = "SINGULARITY_PROXY_SOCKETS";
constexpr const char *kVersion = "13.0";

// Handles stay valid after a second nvmlInit, as with NVIDIA's library: devices are found once and kept.
struct State {
    std::mutex mutex;
    unsigned initialized = 0;
    std::vector<std::unique_ptr<Device>> devices;
};
State &state() {
    static auto *const kState = new State; // NOLINT(cppcoreguidelines-owning-memory): outlives exit handlers
    return *kState;
}

Return initialize() {
    auto &all = state();
    const std::scoped_lock lock(all.mutex);
    if (all.devices.empty()) {
        const char *const sockets = std::getenv(kSockets); // NOLINT(concurrency-mt-unsafe): as NVML does
        auto found = singularity::nvml::find_devices(sockets != nullptr ? sockets : "");
        if (!found) {
            kLog.error("{}", found.error().message());
            return Return::driver_not_loaded;
        }
        for (auto &device : *found)
            all.devices.push_back(std::make_unique<Device>(std::move(device)));
    }
    ++all.initialized;
    return Return::success;
}

Return shut_down() {
    auto &all = state();
    const std::scoped_lock lock(all.mutex);
    if (all.initialized == 0)
        return Return::uninitialized;
    --all.initialized;
    return Return::success;
}

// Calls use(device) for a handle of ours.
template <class Use>
Return with(const Device *handle, Use use) {
    auto &all = state();
    const std::scoped_lock lock(all.mutex);
    if (all.initialized == 0)
        return Return::uninitialized;
    const auto found =
        std::ranges::find(all.devices, handle, [](const auto &device) { return device.get(); });
    return found != all.devices.end() ? use(**found) : Return::invalid_argument;
}

template <class Matches>
Return find(Device **out, Matches matches) {
    auto &all = state();
    const std::scoped_lock lock(all.mutex);
    if (all.initialized == 0)
        return Return::uninitialized;
    if (out == nullptr)
        return Return::invalid_argument;
    const auto found =
        std::ranges::find_if(all.devices, [&](const auto &device) { return matches(*device); });
    if (found == all.devices.end())
        return Return::not_found;
    *out = found->get();
    return Return::success;
}

// Text and its NUL into memory of the caller's.
Return give(std::string_view text, char *out, unsigned size) {
    if (out == nullptr)
        return Return::invalid_argument;
    if (size <= text.size())
        return Return::insufficient_size;
    std::ranges::copy(text, out);
    out[text.size()] = '\0';
    return Return::success;
}

template <class T>
Return give(const T &value, T *out) {
    if (out == nullptr)
        return Return::invalid_argument;
    *out = value;
    return Return::success;
}

PciInfo pci_info(const Device &device) {
    PciInfo out{};
    const auto text = device.bus_id();
    // The legacy form has four digits of the domain instead of eight.
    text.copy(out.bus_id_legacy.data(), out.bus_id_legacy.size() - 1, 4);
    text.copy(out.bus_id.data(), out.bus_id.size() - 1);
    constexpr unsigned kBus = 33;
    constexpr unsigned kSlot = 34;
    constexpr unsigned kDomain = 50;
    out.domain = device.pci(kDomain);
    out.bus = device.pci(kBus);
    out.device = device.pci(kSlot);
    return out;
}

// "0000:01:00.0", with four or eight digits of the domain, in either case.
bool same_bus_id(const Device &device, std::string_view text) {
    const auto full = device.bus_id();
    const auto equal = [](std::string_view a, std::string_view b) {
        return std::ranges::equal(a, b, [](char x, char y) { return std::tolower(x) == std::tolower(y); });
    };
    return equal(full, text) || equal(std::string_view(full).substr(4), text);
}

Return memory_of(const Device &device, Memory &out) {
    // Free memory changes: asked anew. A proxy that is gone has none to tell of.
    const auto now = singularity::nvml::identify(device.socket);
    if (!now)
        return Return::not_found;
    out.total = now->device.total_memory;
    out.free = std::min(now->free_memory, out.total);
    out.used = out.total - out.free;
    return Return::success;
}

const char *text_of(Return result) {
    switch (result) {
    case Return::success:
        return "Success";
    case Return::uninitialized:
        return "Uninitialized";
    case Return::invalid_argument:
        return "Invalid Argument";
    case Return::not_supported:
        return "Not Supported";
    case Return::not_found:
        return "Not Found";
    case Return::insufficient_size:
        return "Insufficient Size";
    case Return::driver_not_loaded:
        return "Driver Not Loaded";
    case Return::argument_version_mismatch:
        return "Argument Version Mismatch";
    }
    return "Unknown Error";
}

} // namespace

// NVML's names and parameters. Functions with a version in their name are the same function where only a
// struct grew that is not used here.
#define NVML_EXPORT [[gnu::visibility("default")]]
extern "C" {

NVML_EXPORT Return nvmlInit_v2() { return initialize(); }
NVML_EXPORT Return nvmlInit() { return initialize(); }
NVML_EXPORT Return nvmlInitWithFlags(unsigned /*flags*/) { return initialize(); }
NVML_EXPORT Return nvmlShutdown() { return shut_down(); }
NVML_EXPORT const char *nvmlErrorString(Return result) { return text_of(result); }

NVML_EXPORT Return nvmlSystemGetDriverVersion(char *version, unsigned length) {
    return give(kVersion, version, length);
}
NVML_EXPORT Return nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    return give(kVersion, version, length);
}
NVML_EXPORT Return nvmlSystemGetCudaDriverVersion(int *version) { return give(13000, version); }
NVML_EXPORT Return nvmlSystemGetCudaDriverVersion_v2(int *version) { return give(13000, version); }

NVML_EXPORT Return nvmlDeviceGetCount_v2(unsigned *count) {
    auto &all = state();
    const std::scoped_lock lock(all.mutex);
    return all.initialized == 0 ? Return::uninitialized
                                : give(static_cast<unsigned>(all.devices.size()), count);
}
NVML_EXPORT Return nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

NVML_EXPORT Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    const auto result = find(device, [&](const Device &one) { return one.index == index; });
    return result == Return::not_found ? Return::invalid_argument : result;
}
NVML_EXPORT Return nvmlDeviceGetHandleByIndex(unsigned index, Device **device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}
NVML_EXPORT Return nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
    return uuid == nullptr ? Return::invalid_argument
                           : find(device, [&](const Device &one) { return one.uuid() == uuid; });
}
NVML_EXPORT Return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Device **device) {
    return bus_id == nullptr ? Return::invalid_argument
                             : find(device, [&](const Device &one) { return same_bus_id(one, bus_id); });
}
NVML_EXPORT Return nvmlDeviceGetHandleByPciBusId(const char *bus_id, Device **device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

NVML_EXPORT Return nvmlDeviceGetName(const Device *device, char *name, unsigned length) {
    return with(device,
                [&](const Device &one) { return give(one.identity.device.name.data(), name, length); });
}
NVML_EXPORT Return nvmlDeviceGetUUID(const Device *device, char *uuid, unsigned length) {
    return with(device, [&](const Device &one) { return give(one.uuid(), uuid, length); });
}
NVML_EXPORT Return nvmlDeviceGetIndex(const Device *device, unsigned *index) {
    return with(device, [&](const Device &one) { return give(one.index, index); });
}
NVML_EXPORT Return nvmlDeviceGetMinorNumber(const Device *device, unsigned *minor) {
    return with(device, [&](const Device &one) { return give(one.index, minor); });
}
NVML_EXPORT Return nvmlDeviceGetPciInfo_v3(const Device *device, PciInfo *info) {
    return with(device, [&](const Device &one) { return give(pci_info(one), info); });
}
NVML_EXPORT Return nvmlDeviceGetPciInfo_v2(const Device *device, PciInfo *info) {
    return nvmlDeviceGetPciInfo_v3(device, info);
}
NVML_EXPORT Return nvmlDeviceGetCudaComputeCapability(const Device *device, int *major, int *minor) {
    return with(device, [&](const Device &one) {
        const auto result = give(one.identity.device.compute_major, major);
        return result == Return::success ? give(one.identity.device.compute_minor, minor) : result;
    });
}
NVML_EXPORT Return nvmlDeviceGetMemoryInfo(const Device *device, Memory *memory) {
    return with(device, [&](const Device &one) {
        return memory == nullptr ? Return::invalid_argument : memory_of(one, *memory);
    });
}
NVML_EXPORT Return nvmlDeviceGetMemoryInfo_v2(const Device *device, MemoryV2 *memory) {
    return with(device, [&](const Device &one) {
        if (memory == nullptr)
            return Return::invalid_argument;
        if (memory->version != singularity::nvml::kMemoryV2Version)
            return Return::argument_version_mismatch;
        Memory now{};
        const auto result = memory_of(one, now);
        if (result == Return::success)
            *memory = {.version = memory->version,
                       .total = now.total,
                       .reserved = 0,
                       .free = now.free,
                       .used = now.used};
        return result;
    });
}
NVML_EXPORT Return nvmlDeviceGetComputeMode(const Device *device, int *mode) {
    return with(device, [&](const Device &) { return give(0, mode); }); // NVML_COMPUTEMODE_DEFAULT
}
NVML_EXPORT Return nvmlDeviceGetPersistenceMode(const Device *device, int *mode) {
    return with(device, [&](const Device &) { return give(1, mode); }); // the proxy keeps the device open
}
NVML_EXPORT Return nvmlDeviceGetMigMode(const Device *device, unsigned * /*current*/,
                                        unsigned * /*pending*/) {
    return with(device, [](const Device &) { return Return::not_supported; });
}

// Asked for by NCCL and by monitoring; a virtual device has nothing to tell.
#define NVML_NOT_SUPPORTED(name)                                                                             \
    NVML_EXPORT Return name(const Device *device) {                                                          \
        return with(device, [](const Device &) { return Return::not_supported; });                           \
    }
NVML_NOT_SUPPORTED(nvmlDeviceGetNvLinkState)
NVML_NOT_SUPPORTED(nvmlDeviceGetNvLinkVersion)
NVML_NOT_SUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType)
NVML_NOT_SUPPORTED(nvmlDeviceGetNvLinkCapability)
NVML_NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo)
NVML_NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
NVML_NOT_SUPPORTED(nvmlDeviceGetP2PStatus)
NVML_NOT_SUPPORTED(nvmlDeviceGetTopologyCommonAncestor)
NVML_NOT_SUPPORTED(nvmlDeviceGetUtilizationRates)
NVML_NOT_SUPPORTED(nvmlDeviceGetTemperature)
NVML_NOT_SUPPORTED(nvmlDeviceGetPowerUsage)
NVML_NOT_SUPPORTED(nvmlDeviceGetClockInfo)
NVML_NOT_SUPPORTED(nvmlDeviceGetFieldValues)
NVML_NOT_SUPPORTED(nvmlDeviceGetCpuAffinity)
NVML_NOT_SUPPORTED(nvmlDeviceGetMaxPcieLinkGeneration)
NVML_NOT_SUPPORTED(nvmlDeviceGetMaxPcieLinkWidth)
NVML_NOT_SUPPORTED(nvmlDeviceGetCurrPcieLinkGeneration)
NVML_NOT_SUPPORTED(nvmlDeviceGetCurrPcieLinkWidth)
NVML_NOT_SUPPORTED(nvmlDeviceGetMaxClockInfo)
NVML_NOT_SUPPORTED(nvmlDeviceGetPowerManagementLimit)
NVML_NOT_SUPPORTED(nvmlDeviceGetEnforcedPowerLimit)
NVML_NOT_SUPPORTED(nvmlDeviceGetTotalEnergyConsumption)
NVML_NOT_SUPPORTED(nvmlDeviceGetPerformanceState)
NVML_NOT_SUPPORTED(nvmlDeviceGetFanSpeed)
NVML_NOT_SUPPORTED(nvmlDeviceGetEccMode)

// Programs of other jobs are nobody's business here, and PyTorch takes it for a fault of its own when it is
// not told, while it says that memory is out.
#define NVML_NO_PROCESSES(name)                                                                              \
    NVML_EXPORT Return name(const Device *device, unsigned *count, void * /*processes*/) {                   \
        return with(device, [&](const Device &) { return give(0U, count); });                                \
    }
NVML_NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses)
NVML_NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2)
NVML_NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
NVML_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NVML_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NVML_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NVML_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NVML_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NVML_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

} // extern "C"
