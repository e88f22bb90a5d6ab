// SPDX-License-Identifier: GPL-2.0-or-later
// Copies and fills: from what a program says to addresses that were checked.
#pragma once

#include "driver/context.hpp"
#include "driver/operation.hpp"

namespace singularity::softgpu::driver {

// Where the ends of a copy are. Pageable: host memory that the driver does not know.
struct CopyEnds {
    bool pageable_source = false;
    bool pageable_target = false;
    bool host = false; // any end is host memory of any kind
};

// Checks every byte of the device ends and fills in the addresses.
[[nodiscard]] Result<CopyEnds> resolve(CopyOperation &copy);
[[nodiscard]] CUresult resolve(FillOperation &fill);

void run(const CopyOperation &copy); // resolved
void run(const FillOperation &fill); // resolved

// Whether all of [address, address + size) is known to the driver; adds what holds it.
[[nodiscard]] bool hold(std::uint64_t address, std::uint64_t size, Holds &holds);

// Bytes from one address to another, of any kind of memory.
[[nodiscard]] CUDA_MEMCPY3D linear_copy(std::uint64_t target, CUmemorytype target_type, std::uint64_t source,
                                        CUmemorytype source_type, std::uint64_t size);
[[nodiscard]] CUDA_MEMCPY3D copy_of(const CUDA_MEMCPY2D &copy);
[[nodiscard]] CUDA_MEMCPY3D copy_of(const CUDA_MEMCPY3D_PEER &copy);

// Operations on values in memory: their addresses, checked.
[[nodiscard]] Result<MemoryOperations>
memory_operations(Context &context, const CUstreamBatchMemOpParams *list, unsigned count, unsigned flags);

// The whole call: capture, waiting and staging as the kinds of memory ask for.
[[nodiscard]] CUresult perform(Context &context, CUstream stream, const CUDA_MEMCPY3D &copy,
                               bool asynchronous);
[[nodiscard]] CUresult perform(Context &context, CUstream stream, const CUDA_MEMSET_NODE_PARAMS &fill,
                               bool asynchronous);

} // namespace singularity::softgpu::driver
