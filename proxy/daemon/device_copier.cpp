// SPDX-License-Identifier: GPL-2.0-or-later
#include "device_copier.hpp"

#include "back_end.hpp"
#include "slabs.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {
constexpr std::size_t kPage = 4096;
} // namespace

DeviceCopier::DeviceCopier(const driver_api::Backend &driver, Slabs &slabs, std::size_t piece)
    : driver_(driver), slabs_(slabs), size_(piece) {}

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
    return slabs_.use(
        address, bytes.size(), Slabs::Use::reads, [&](const Slabs::Piece &piece) -> Expected<void> {
            const auto to = bytes.subspan(piece.offset, piece.size);
            if (piece.host != nullptr) {
                std::ranges::copy(std::span(piece.host, piece.size), to.begin());
                return {};
            }
            auto done = driver_.cuMemcpyDtoHAsync_v2(to.data(), piece.address, piece.size, nullptr);
            if (done == CUDA_SUCCESS)
                done = driver_.cuStreamSynchronize(nullptr);
            return result(done, "read", piece.address, piece.size);
        });
}

Expected<void> DeviceCopier::write(std::uint64_t address, std::span<const std::byte> bytes) {
    get_ready();
    return slabs_.use(
        address, bytes.size(), Slabs::Use::writes, [&](const Slabs::Piece &piece) -> Expected<void> {
            const auto from = bytes.subspan(piece.offset, piece.size);
            if (piece.host != nullptr) {
                std::ranges::copy(from, piece.host);
                return {};
            }
            std::ranges::copy(from, piece_.begin());
            auto done = driver_.cuMemcpyHtoDAsync_v2(piece.address, piece_.data(), piece.size, nullptr);
            if (done == CUDA_SUCCESS)
                done = driver_.cuStreamSynchronize(nullptr);
            return result(done, "write", piece.address, piece.size);
        });
}

Expected<void> DeviceCopier::zero(std::uint64_t address, std::uint64_t size) {
    if (driver_.cuMemsetD8Async == nullptr)
        return failure("clear", "device memory", "the driver has no cuMemsetD8Async", ENOSYS);
    return slabs_.use(address, size, Slabs::Use::writes, [&](const Slabs::Piece &piece) -> Expected<void> {
        if (piece.host != nullptr) {
            std::ranges::fill(std::span(piece.host, piece.size), std::byte{0});
            return {};
        }
        auto done = driver_.cuMemsetD8Async(piece.address, 0, piece.size, nullptr);
        if (done == CUDA_SUCCESS)
            done = driver_.cuStreamSynchronize(nullptr);
        return result(done, "clear", piece.address, piece.size);
    });
}

} // namespace singularity::proxyd
