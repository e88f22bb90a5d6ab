// SPDX-License-Identifier: GPL-2.0-or-later
#include "back_end.hpp"

#include "driver_mappings.hpp"
#include "log.hpp"
#include "proxy/libcuda/software_gpu.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

std::unexpected<Error> driver_error(const driver_api::Backend &driver, std::string doing, CUresult result) {
    return failure(std::move(doing), "the driver", result_name(driver, result));
}

} // namespace

std::string result_name(const driver_api::Backend &driver, CUresult result) {
    const char *name = nullptr;
    if (driver.cuGetErrorName != nullptr && driver.cuGetErrorName(result, &name) == CUDA_SUCCESS &&
        name != nullptr)
        return name;
    return fmt::format("CUresult {}", std::to_underlying(result));
}

Expected<std::unique_ptr<BackEnd>> BackEnd::open(const std::filesystem::path &library, int ordinal) {
    void *handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char *why = dlerror();
        return failure("open the driver library", library.native(), why == nullptr ? "unknown reason" : why);
    }
    std::unique_ptr<BackEnd> back_end(new BackEnd);
    driver_api::load(back_end->driver_, handle);
    if (auto complete = back_end->check_symbols(library); !complete)
        return propagate(complete);
    if (auto placed = place_mappings_of(dlsym(handle, "cuInit")); !placed)
        return propagate(placed);
    if (auto identified = back_end->identify(library, ordinal); !identified)
        return propagate(identified);
    return back_end;
}

std::unique_ptr<BackEnd> BackEnd::with(const driver_api::Backend &driver) {
    std::unique_ptr<BackEnd> back_end(new BackEnd);
    back_end->driver_ = driver;
    return back_end;
}

bool BackEnd::is_software() const {
    return std::ranges::equal(libcuda::kSoftwareGpuUuid,
                              std::span(identity_.uuid).first<libcuda::kSoftwareGpuUuid.size()>());
}

// What no session can do without. The rest is answered with CUDA_ERROR_NOT_SUPPORTED where it is missing.
Expected<void> BackEnd::check_symbols(const std::filesystem::path &library) const {
    const std::array<std::pair<bool, std::string_view>, 20> needed{{
        {driver_.cuInit != nullptr, "cuInit"},
        {driver_.cuDeviceGet != nullptr, "cuDeviceGet"},
        {driver_.cuDeviceGetCount != nullptr, "cuDeviceGetCount"},
        {driver_.cuDeviceGetName != nullptr, "cuDeviceGetName"},
        {driver_.cuDeviceTotalMem_v2 != nullptr, "cuDeviceTotalMem_v2"},
        {driver_.cuDeviceGetAttribute != nullptr, "cuDeviceGetAttribute"},
        {driver_.cuCtxCreate_v2 != nullptr, "cuCtxCreate_v2"},
        {driver_.cuCtxDestroy_v2 != nullptr, "cuCtxDestroy_v2"},
        {driver_.cuCtxPopCurrent_v2 != nullptr, "cuCtxPopCurrent_v2"},
        {driver_.cuCtxSetCurrent != nullptr, "cuCtxSetCurrent"},
        {driver_.cuMemAddressReserve != nullptr, "cuMemAddressReserve"},
        {driver_.cuMemAddressFree != nullptr, "cuMemAddressFree"},
        {driver_.cuMemCreate != nullptr, "cuMemCreate"},
        {driver_.cuMemRelease != nullptr, "cuMemRelease"},
        {driver_.cuMemMap != nullptr, "cuMemMap"},
        {driver_.cuMemUnmap != nullptr, "cuMemUnmap"},
        {driver_.cuMemSetAccess != nullptr, "cuMemSetAccess"},
        {driver_.cuMemcpyHtoDAsync_v2 != nullptr, "cuMemcpyHtoDAsync_v2"},
        {driver_.cuMemcpyDtoHAsync_v2 != nullptr, "cuMemcpyDtoHAsync_v2"},
        {driver_.cuStreamSynchronize != nullptr, "cuStreamSynchronize"},
    }};
    for (const auto &[there, name] : needed)
        if (!there)
            return failure("use the driver library", library.native(), fmt::format("it has no {}", name));
    return {};
}

Expected<void> BackEnd::identify(const std::filesystem::path &library, int ordinal) {
    const auto started = driver_.cuInit(0);
    if (started == CUDA_ERROR_NO_DEVICE)
        return failure(
            "serve", fmt::format("device {}", ordinal),
            fmt::format("the driver {} finds no device on this host: is there a GPU, is its kernel module "
                        "loaded (nvidia-smi lists it), and may this process open /dev/nvidia*?",
                        library.native()),
            ENODEV);
    if (started != CUDA_SUCCESS)
        return driver_error(driver_, "start", started);
    int count = 0;
    if (const auto result = driver_.cuDeviceGetCount(&count); result != CUDA_SUCCESS)
        return driver_error(driver_, "count the devices of", result);
    if (ordinal >= count)
        return failure("serve", fmt::format("device {}", ordinal),
                       fmt::format("the driver has {} devices; they are numbered from 0", count), ENODEV);
    if (const auto result = driver_.cuDeviceGet(&device_, ordinal); result != CUDA_SUCCESS)
        return driver_error(driver_, "open the device of", result);
    identity_.ordinal = ordinal;
    if (const auto result = driver_.cuDeviceGetName(identity_.name.data(),
                                                    static_cast<int>(identity_.name.size() - 1), device_);
        result != CUDA_SUCCESS)
        return driver_error(driver_, "ask the device's name of", result);
    std::size_t memory = 0;
    if (const auto result = driver_.cuDeviceTotalMem_v2(&memory, device_); result != CUDA_SUCCESS)
        return driver_error(driver_, "ask the device's memory of", result);
    identity_.total_memory = memory;
    for (std::size_t number = 1; number < channel::kAttributeLimit; ++number) {
        int value = 0;
        if (driver_.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(number), device_) !=
            CUDA_SUCCESS)
            continue;
        identity_.attributes[number] = value;
        identity_.attribute_known[number / 64] |= std::uint64_t{1} << (number % 64);
    }
    identity_.compute_major = identity_.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
    identity_.compute_minor = identity_.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
    // Not every driver and device has these; what is missing stays zero.
    CUuuid uuid{};
    if (driver_.cuDeviceGetUuid_v2 != nullptr && driver_.cuDeviceGetUuid_v2(&uuid, device_) == CUDA_SUCCESS)
        std::memcpy(identity_.uuid.data(), uuid.bytes, identity_.uuid.size());
    unsigned mask = 0;
    if (driver_.cuDeviceGetLuid != nullptr &&
        driver_.cuDeviceGetLuid(identity_.luid.data(), &mask, device_) == CUDA_SUCCESS) {
        identity_.luid_node_mask = mask;
        identity_.luid_valid = 1;
    }
    if (driver_.cuDriverGetVersion != nullptr)
        static_cast<void>(driver_.cuDriverGetVersion(&identity_.driver_version));
    if (driver_.cuDeviceGetPCIBusId != nullptr)
        static_cast<void>(driver_.cuDeviceGetPCIBusId(
            identity_.pci_bus_id.data(), static_cast<int>(identity_.pci_bus_id.size() - 1), device_));
    if (driver_.cuDeviceGetExecAffinitySupport != nullptr)
        static_cast<void>(driver_.cuDeviceGetExecAffinitySupport(&identity_.exec_affinity_sm_count,
                                                                 CU_EXEC_AFFINITY_TYPE_SM_COUNT, device_));
    ask_granularity();
    ask_context();
    return {};
}

void BackEnd::ask_granularity() {
    // What is used where the driver does not say: the page that every device of today has.
    constexpr std::uint64_t kDefault = std::uint64_t{2} << 20;
    const auto ask = [this](CUmemAllocationGranularity_flags which) -> std::uint64_t {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = device_;
        std::size_t granularity = 0;
        if (driver_.cuMemGetAllocationGranularity == nullptr ||
            driver_.cuMemGetAllocationGranularity(&granularity, &properties, which) != CUDA_SUCCESS)
            return kDefault;
        return granularity;
    };
    identity_.allocation_granularity = ask(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    identity_.allocation_granularity_recommended = ask(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
}

// The range of stream priorities is told to a context only: one is made for the question.
void BackEnd::ask_context() {
    if (driver_.cuCtxGetStreamPriorityRange == nullptr)
        return;
    CUcontext context = nullptr;
    if (const auto result = driver_.cuCtxCreate_v2(&context, 0, device_); result != CUDA_SUCCESS) {
        kLog.warning("cannot ask for the range of stream priorities: no context: {}",
                     result_name(driver_, result));
        return;
    }
    int least = 0;
    int greatest = 0;
    if (driver_.cuCtxGetStreamPriorityRange(&least, &greatest) == CUDA_SUCCESS) {
        identity_.stream_priority_least = least;
        identity_.stream_priority_greatest = greatest;
    }
    if (const auto result = driver_.cuCtxDestroy_v2(context); result != CUDA_SUCCESS)
        kLog.warning("cannot destroy the context that asked for stream priorities: {}",
                     result_name(driver_, result));
}

} // namespace singularity::proxyd
