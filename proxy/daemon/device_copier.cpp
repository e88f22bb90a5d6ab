// SPDX-License-Identifier: GPL-2.0-or-later
#include "device_copier.hpp"

#include "back_end.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {
constexpr std::size_t kPage = 4096;
} // namespace

DeviceCopier::DeviceCopier(const driver_api::Backend &driver, std::size_t piece)
    : driver_(driver), memory_(piece + kPage) {
    auto *const base =
        memory_.data() + (kPage - std::bit_cast<std::uintptr_t>(memory_.data()) % kPage) % kPage;
    piece_ = {base, piece};
}

// Not before there is a context. Without it the driver copies in pieces of its own: slower, not wrong.
void DeviceCopier::get_ready() {
    if (std::exchange(ready_, true) || driver_.cuMemHostRegister_v2 == nullptr)
        return;
    registered_ = driver_.cuMemHostRegister_v2(piece_.data(), piece_.size(), CU_MEMHOSTREGISTER_PORTABLE) ==
                  CUDA_SUCCESS;
}

DeviceCopier::~DeviceCopier() {
    if (registered_ && driver_.cuMemHostUnregister != nullptr)
        static_cast<void>(driver_.cuMemHostUnregister(piece_.data()));
}

Expected<void> DeviceCopier::result(CUresult result, const char *doing, std::uint64_t address,
                                    std::uint64_t size) const {
    if (result == CUDA_SUCCESS)
        return {};
    return failure(doing, fmt::format("device memory {:#x}+{:#x}", address, size),
                   result_name(driver_, result), EIO);
}

Expected<std::span<const std::byte>> DeviceCopier::read(std::uint64_t address, std::size_t size) {
    get_ready();
    auto done = driver_.cuMemcpyDtoHAsync_v2(piece_.data(), address, size, nullptr);
    if (done == CUDA_SUCCESS)
        done = driver_.cuStreamSynchronize(nullptr);
    if (auto good = result(done, "read", address, size); !good)
        return propagate(good);
    return piece_.first(size);
}

Expected<void> DeviceCopier::write(std::uint64_t address, std::span<const std::byte> bytes) {
    get_ready();
    std::ranges::copy(bytes, piece_.begin());
    auto done = driver_.cuMemcpyHtoDAsync_v2(address, piece_.data(), bytes.size(), nullptr);
    if (done == CUDA_SUCCESS)
        done = driver_.cuStreamSynchronize(nullptr);
    return result(done, "write", address, bytes.size());
}

Expected<void> DeviceCopier::zero(std::uint64_t address, std::uint64_t size) {
    if (driver_.cuMemsetD8Async == nullptr)
        return failure("clear", "device memory", "the driver has no cuMemsetD8Async", ENOSYS);
    auto done = driver_.cuMemsetD8Async(address, 0, size, nullptr);
    if (done == CUDA_SUCCESS)
        done = driver_.cuStreamSynchronize(nullptr);
    return result(done, "clear", address, size);
}

} // namespace singularity::proxyd
