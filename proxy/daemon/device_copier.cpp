// SPDX-License-Identifier: GPL-2.0-or-later
#include "device_copier.hpp"

#include "back_end.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {
constexpr std::size_t kPage = 4096;
} // namespace

DeviceCopier::DeviceCopier(const driver_api::Backend &driver, std::size_t piece)
    : driver_(driver), size_(piece) {}

// Not before there is a context. Without it the driver copies in pieces of its own: slower, not wrong.
void DeviceCopier::get_ready() {
    if (!memory_.empty())
        return;
    memory_.resize(size_ + kPage);
    auto *const base =
        memory_.data() + (kPage - std::bit_cast<std::uintptr_t>(memory_.data()) % kPage) % kPage;
    piece_ = {base, size_};
    registered_ = driver_.cuMemHostRegister_v2 != nullptr &&
                  driver_.cuMemHostRegister_v2(piece_.data(), piece_.size(), CU_MEMHOSTREGISTER_PORTABLE) ==
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

Expected<void> DeviceCopier::read(std::uint64_t address, std::span<std::byte> bytes) {
    auto done = driver_.cuMemcpyDtoHAsync_v2(bytes.data(), address, bytes.size(), nullptr);
    if (done == CUDA_SUCCESS)
        done = driver_.cuStreamSynchronize(nullptr);
    return result(done, "read", address, bytes.size());
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
