// SPDX-License-Identifier: GPL-2.0-or-later
// Device memory of other processes (cuIpcOpenMemHandle), and of this one that others may open. What is shared
// is the slab, which the daemon maps into this process's slice as well; what is opened is an allocation in
// it.
#pragma once

#include "context.hpp"
#include "memory.hpp"

#include <array>
#include <cstdint>

namespace singularity::client {

// What a CUipcMemHandle holds. Whoever gives it to this process may have written anything into it.
struct MemoryHandle {
    static constexpr std::uint64_t kMagic = 0x316d'656d'6370'4953; // which this version makes
    std::uint64_t magic = kMagic;
    std::uint64_t place = 0;            // see this_place()
    std::array<std::uint64_t, 2> key{}; // of the slab
    std::uint64_t number = 0;           // of the allocation
    std::uint64_t offset = 0;           // where it is in the slab
    std::uint64_t length = 0;
    std::uint64_t slab = 0; // bytes
};
static_assert(sizeof(MemoryHandle) == CU_IPC_HANDLE_SIZE);

// Of an allocation of cuMemAlloc's.
[[nodiscard]] CUresult export_memory(const DeviceAllocation &allocation, MemoryHandle &handle);

// The same handle twice: the same address, to be closed twice.
[[nodiscard]] CUresult open_memory(Context &context, const MemoryHandle &handle, std::uint64_t &address);
[[nodiscard]] CUresult close_memory(std::uint64_t address);
// The context has ended, and what it has opened with it.
void forget_opened(const Context &context);

// What handles are good for: processes of this host (a virtual node is one), as others know it.
[[nodiscard]] std::uint64_t this_place();

} // namespace singularity::client
