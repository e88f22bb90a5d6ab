// SPDX-License-Identifier: GPL-2.0-or-later
// Occupancy: how many blocks one multiprocessor holds, by threads, registers, shared memory and blocks.
#include "driver/api/entry.hpp"
#include "driver/launch.hpp"
#include "driver/module.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

constexpr std::uint32_t kRegisterUnit = 256; // registers are given to warps in these
constexpr std::uint64_t kSharedUnit = 128;

std::uint64_t shared_of_block(Function &function, std::uint64_t dynamic_shared) {
    return round_up(function.info().static_shared + dynamic_shared + kSharedReserved, kSharedUnit);
}

} // namespace

int resident_blocks(Function &function, int block_size, std::uint64_t dynamic_shared) {
    const KernelInfo &info = function.info();
    if (block_size < 1 || static_cast<std::uint32_t>(block_size) > std::min(info.max_threads, kBlockThreads))
        return 0;
    if (info.static_shared + dynamic_shared > kSharedOptIn)
        return 0;
    const std::uint32_t warps = (static_cast<std::uint32_t>(block_size) + kWarp - 1) / kWarp;
    const std::uint64_t registers =
        round_up(std::uint64_t{std::max(info.registers, 1U)} * kWarp, kRegisterUnit) * warps;
    const std::uint64_t blocks =
        std::min({std::uint64_t{kMultiprocessorThreads / (warps * kWarp)},
                  std::uint64_t{kMultiprocessorBlocks}, std::uint64_t{kRegisters} / registers,
                  std::uint64_t{kSharedMultiprocessor} / shared_of_block(function, dynamic_shared)});
    return static_cast<int>(blocks);
}

namespace {

CUresult active_blocks(Function &function, int *out, int block_size, std::size_t dynamic_shared) {
    if (out == nullptr || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = resident_blocks(function, block_size, dynamic_shared);
    return CUDA_SUCCESS;
}

CUresult available_shared(Function &function, std::size_t *out, int blocks, int block_size) {
    if (out == nullptr || blocks <= 0 || block_size <= 0 || resident_blocks(function, block_size, 0) < blocks)
        return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t share =
        std::uint64_t{kSharedMultiprocessor} / static_cast<std::uint64_t>(blocks) / kSharedUnit * kSharedUnit;
    const std::uint64_t fixed = function.info().static_shared + kSharedReserved;
    const std::uint64_t most =
        kSharedOptIn - std::min<std::uint64_t>(function.info().static_shared, kSharedOptIn);
    *out = share <= fixed ? 0 : std::min(share - fixed, most);
    return CUDA_SUCCESS;
}

// The size that keeps most threads resident; of equals the largest.
CUresult best_block(Function &function, int *grid, int *block, CUoccupancyB2DSize shared_of,
                    std::size_t dynamic_shared, int limit) {
    if (grid == nullptr || block == nullptr || limit < 0)
        return CUDA_ERROR_INVALID_VALUE;
    int most = static_cast<int>(std::min(function.info().max_threads, kBlockThreads));
    if (limit != 0)
        most = std::min(most, limit);
    int best_size = 0;
    int best_blocks = 0;
    const int step = static_cast<int>(kWarp);
    for (int size = most; size > 0; size = (size - 1) / step * step) {
        const int blocks =
            resident_blocks(function, size, shared_of != nullptr ? shared_of(size) : dynamic_shared);
        if (blocks * size > best_blocks * best_size) {
            best_size = size;
            best_blocks = blocks;
        }
    }
    *block = best_size;
    *grid = best_blocks * static_cast<int>(kMultiprocessors);
    return CUDA_SUCCESS;
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
    return with_function(func, [&](Function &function) {
        return active_blocks(function, numBlocks, blockSize, dynamicSMemSize);
    });
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
                                                              size_t dynamicSMemSize, unsigned int flags) {
    return with_function(func, [&](Function &function) {
        return flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE
                   ? CUDA_ERROR_INVALID_VALUE
                   : active_blocks(function, numBlocks, blockSize, dynamicSMemSize);
    });
}
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func, int numBlocks,
                                                 int blockSize) {
    return with_function(func, [&](Function &function) {
        return available_shared(function, dynamicSmemSize, numBlocks, blockSize);
    });
}
CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
    return with_function(func, [&](Function &function) {
        return best_block(function, minGridSize, blockSize, blockSizeToDynamicSMemSize, dynamicSMemSize,
                          blockSizeLimit);
    });
}
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
    return flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE
               ? CUDA_ERROR_INVALID_VALUE
               : cuOccupancyMaxPotentialBlockSize(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                  dynamicSMemSize, blockSizeLimit);
}
// Clusters have one block.
CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config) {
    return with_function(func, [&](Function &function) {
        if (numClusters == nullptr || config == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        const int threads = static_cast<int>(config->blockDimX * config->blockDimY * config->blockDimZ);
        *numClusters =
            resident_blocks(function, threads, config->sharedMemBytes) * static_cast<int>(kMultiprocessors);
        return CUDA_SUCCESS;
    });
}
CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config) {
    return with_function(func, [&](Function &) {
        if (clusterSize == nullptr || config == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        *clusterSize = 1;
        return CUDA_SUCCESS;
    });
}

} // extern "C"
