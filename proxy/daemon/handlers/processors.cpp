// SPDX-License-Identifier: GPL-2.0-or-later
// The places of multiprocessors, which NVIDIA's driver tells through a table that no header declares.
// cuBLASLt asks on devices of compute capability 9.0, and does not bear a refusal. Seen on driver 580.159
// with an H100: slot 4 allocates two arrays of a byte for each pair of multiprocessors, slot 13 frees them.
#include "handlers.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include <malloc.h>

namespace singularity::proxyd::handlers {

namespace {

constexpr std::array<unsigned char, 16> kTable{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45,
                                               0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca};
constexpr std::size_t kTell = 4;
constexpr std::size_t kFree = 13;
using Tell = CUresult (*)(unsigned char **groups, unsigned char **positions);
using Free = CUresult (*)(unsigned char *groups, unsigned char *positions);

// The table says in its first slot how many bytes it has.
const std::uintptr_t *table_of(const driver_api::Backend &driver) {
    const void *table = nullptr;
    const auto id = std::bit_cast<CUuuid>(kTable);
    if (driver.cuGetExportTable == nullptr || driver.cuGetExportTable(&table, &id) != CUDA_SUCCESS ||
        table == nullptr)
        return nullptr;
    const auto *slots = static_cast<const std::uintptr_t *>(table);
    return slots[0] / sizeof(*slots) > kFree ? slots : nullptr;
}

} // namespace

CUresult handle(Call &call, const Request<protocol::ProcessorPlaces> & /*request*/,
                Reply<protocol::ProcessorPlaces> &reply) {
    const auto *slots = table_of(call.driver());
    if (slots == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    unsigned char *groups = nullptr;
    unsigned char *positions = nullptr;
    const auto result = std::bit_cast<Tell>(slots[kTell])(&groups, &positions);
    if (result != CUDA_SUCCESS || groups == nullptr || positions == nullptr)
        return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result;
    // Nothing says how long they are; what malloc has given for them is enough.
    const auto size =
        std::min({malloc_usable_size(groups), malloc_usable_size(positions), protocol::kMostProcessorPairs});
    const auto out = call.elements<unsigned char>(2 * size);
    std::copy_n(groups, size, out.begin());
    std::copy_n(positions, size, out.begin() + static_cast<std::ptrdiff_t>(size));
    reply.buffers[0] = protocol::view_of_elements(std::span<const unsigned char>(out.first(size)));
    reply.buffers[1] = protocol::view_of_elements(std::span<const unsigned char>(out.subspan(size)));
    return std::bit_cast<Free>(slots[kFree])(groups, positions);
}

} // namespace singularity::proxyd::handlers
