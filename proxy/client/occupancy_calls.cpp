// SPDX-License-Identifier: GPL-2.0-or-later
// Occupancy questions that call back into the program, or whose launch configuration holds attributes.
#include "copy.hpp"
#include "launch.hpp"
#include "proxy/libcuda/hooks.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

using namespace singularity;
using namespace singularity::client;

namespace {

CUresult attribute(CUfunction function, const Session &session, CUfunction_attribute which, int &value) {
    if (kind_of(std::bit_cast<std::uint64_t>(function)) == driver_api::kHandleKernel)
        return cuKernelGetAttribute(&value, which, std::bit_cast<CUkernel>(function), session.ordinal());
    return cuFuncGetAttribute(&value, which, function);
}

CUresult cluster_question(int *out, CUfunction function, const CUlaunchConfig *config,
                          protocol::ClusterQuestion question) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (out == nullptr || config == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t stream = 0;
    Route route;
    if (const auto bad = stream_route(config->hStream, stream, route); bad != CUDA_SUCCESS)
        return bad;
    Launchable what;
    if (const auto bad = launchable(function, route, what); bad != CUDA_SUCCESS)
        return bad;
    std::vector<protocol::LaunchAttribute> attributes;
    if (const auto bad = launch_attributes(config->attrs, config->numAttrs, attributes); bad != CUDA_SUCCESS)
        return bad;
    return ask(
        route,
        protocol::Message<protocol::OccupancyOfClusters>{
            .fixed = {.shape = {.function = what.code->handle,
                                .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                                .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                                .shared_bytes = config->sharedMemBytes,
                                .flags = protocol::kLaunchWithConfig},
                      .question = static_cast<std::uint32_t>(question)},
            .buffers = {protocol::view_of_elements(std::span<const protocol::LaunchAttribute>(attributes))}},
        0, [&](const auto &reply) { *out = reply.fixed.value; });
}

} // namespace

extern "C" {

// The block size, in whole warps, with which most threads of a multiprocessor are in use; the larger of
// equals.
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (minGridSize == nullptr || blockSize == nullptr || func == nullptr || blockSizeLimit < 0)
        return CUDA_ERROR_INVALID_VALUE;
    const auto &session = *context->session;
    int most = 0;
    if (const auto bad = attribute(func, session, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, most);
        bad != CUDA_SUCCESS)
        return bad;
    most = std::min(most, session.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
    if (blockSizeLimit > 0)
        most = std::min(most, blockSizeLimit);
    const int warp = std::max(1, session.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
    const int full = session.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    int best_threads = 0;
    int best_blocks = 0;
    int best_size = 0;
    for (int rounded = (most + warp - 1) / warp * warp; rounded > 0; rounded -= warp) {
        const int size = std::min(most, rounded);
        const auto shared =
            blockSizeToDynamicSMemSize == nullptr ? dynamicSMemSize : blockSizeToDynamicSMemSize(size);
        int blocks = 0;
        if (const auto bad =
                cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, func, size, shared, flags);
            bad != CUDA_SUCCESS)
            return bad;
        if (blocks * size > best_threads) {
            best_threads = blocks * size;
            best_blocks = blocks;
            best_size = size;
        }
        if (best_threads >= full)
            break;
    }
    *blockSize = best_size;
    *minGridSize = best_blocks * session.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                     dynamicSMemSize, blockSizeLimit, CU_OCCUPANCY_DEFAULT);
}

CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config) {
    return cluster_question(numClusters, func, config, protocol::ClusterQuestion::most_active_clusters);
}

CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config) {
    return cluster_question(clusterSize, func, config, protocol::ClusterQuestion::potential_cluster_size);
}

CUresult singularity_processor_places(unsigned char **groups, unsigned char **positions) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (groups == nullptr || positions == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *groups = nullptr;
    *positions = nullptr;
    bool there = true;
    const auto copy = [&there](const protocol::View &bytes) {
        auto *memory =
            static_cast<unsigned char *>(std::malloc(std::max<std::size_t>(bytes.bytes.size(), 1)));
        there = there && memory != nullptr;
        if (memory != nullptr && !bytes.bytes.empty())
            std::memcpy(memory, bytes.bytes.data(), bytes.bytes.size());
        return memory;
    };
    const auto result =
        ask({.session = context->session, .context = context}, protocol::Message<protocol::ProcessorPlaces>{},
            2 * protocol::kMostProcessorPairs, [&](const auto &reply) {
                *groups = copy(reply.buffers[0]);
                *positions = copy(reply.buffers[1]);
            });
    if (there)
        return result;
    std::free(std::exchange(*groups, nullptr));
    std::free(std::exchange(*positions, nullptr));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

} // extern "C"
