// SPDX-License-Identifier: GPL-2.0-or-later
#include "device_memory.hpp"

#include "log.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

// Addresses that are wished for, one after the other and then again: below them are the windows, behind them
// programs and libraries.
constexpr std::uint64_t kWishes = std::uint64_t{1} << 39;

class Transit final : public collectives::DeviceMemory {
  public:
    Transit(const driver_api::Backend &driver, std::uint64_t address, std::uint64_t size)
        : driver_(driver), address_(address), size_(size) {}
    Transit(const Transit &) = delete;
    Transit &operator=(const Transit &) = delete;
    Transit(Transit &&) = delete;
    Transit &operator=(Transit &&) = delete;
    ~Transit() override {
        const auto check = [this](CUresult result, const char *what) {
            if (result != CUDA_SUCCESS)
                kLog.warning("{} of what collectives have staged in: {}", what, result_name(driver_, result));
        };
        check(driver_.cuMemUnmap(address_, size_), "cuMemUnmap");
        check(driver_.cuMemAddressFree(address_, size_), "cuMemAddressFree");
    }
    [[nodiscard]] std::uint64_t address() const override { return address_; }

  private:
    const driver_api::Backend &driver_;
    std::uint64_t address_;
    std::uint64_t size_;
};

} // namespace

CUresult map_there(const BackEnd &back_end, std::uint64_t address, std::uint64_t size,
                   CUmemGenericAllocationHandle memory) {
    const auto &calls = back_end.driver();
    CUmemAccessDesc access{};
    access.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = back_end.device()};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    auto result = calls.cuMemMap(address, size, 0, memory, 0);
    if (result == CUDA_SUCCESS) {
        result = calls.cuMemSetAccess(address, size, &access, 1);
        if (result != CUDA_SUCCESS)
            static_cast<void>(calls.cuMemUnmap(address, size));
    }
    return result;
}

CUresult map_left(const BackEnd &back_end, std::uint64_t address, std::uint64_t size,
                  CUmemGenericAllocationHandle memory) {
    const auto result = map_there(back_end, address, size, memory);
    static_cast<void>(back_end.driver().cuMemRelease(memory));
    return result;
}

CUresult map_memory(const BackEnd &back_end, std::uint64_t address, std::uint64_t size, bool on_host) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = on_host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = on_host ? 0 : back_end.device();
    CUmemGenericAllocationHandle memory{};
    const auto result = back_end.driver().cuMemCreate(&memory, size, &properties, 0);
    return result == CUDA_SUCCESS ? map_left(back_end, address, size, memory) : result;
}

Expected<std::shared_ptr<const collectives::DeviceMemory>> StagingDevice::stage(std::size_t size) {
    const auto &calls = back_end_.driver();
    const auto unit = std::max<std::uint64_t>(back_end_.identity().allocation_granularity, 1);
    const auto whole = (size + unit - 1) / unit * unit;
    const auto refused = [&](const char *doing, CUresult result) {
        return failure(doing, fmt::format("{} bytes of device memory", whole), result_name(calls, result),
                       ENOMEM);
    };
    CUdeviceptr address = 0;
    const auto wish = (near_ + (next_.fetch_add(whole, std::memory_order_relaxed) % kWishes)) / unit * unit;
    if (const auto result = calls.cuMemAddressReserve(&address, whole, 0, wish, 0); result != CUDA_SUCCESS)
        return refused("reserve addresses for", result);
    if (const auto result = map_memory(back_end_, address, whole); result != CUDA_SUCCESS) {
        static_cast<void>(calls.cuMemAddressFree(address, whole));
        return refused("have", result);
    }
    return std::make_shared<Transit>(calls, address, whole);
}

} // namespace singularity::proxyd
