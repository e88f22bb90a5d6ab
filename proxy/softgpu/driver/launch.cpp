// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/launch.hpp"

#include "driver/capture.hpp"
#include "driver/log.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

bool within(unsigned value, unsigned most) { return value >= 1 && value <= most; }

// The parameter buffer as the kernel sees it.
Result<std::vector<std::byte>> parameter_buffer(const KernelInfo &info, void **parameters, void **extra) {
    std::vector<std::byte> buffer(info.parameter_size);
    if (parameters != nullptr && extra != nullptr)
        return refused(CUDA_ERROR_INVALID_VALUE);
    if (extra != nullptr) {
        const void *from = nullptr;
        std::size_t size = 0;
        bool sized = false;
        for (std::size_t at = 0; extra[at] != CU_LAUNCH_PARAM_END; at += 2) {
            if (extra[at] == CU_LAUNCH_PARAM_BUFFER_POINTER)
                from = extra[at + 1];
            else if (extra[at] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
                size = *static_cast<const std::size_t *>(extra[at + 1]);
                sized = true;
            } else
                return refused(CUDA_ERROR_INVALID_VALUE);
        }
        if (!sized || (from == nullptr && size != 0) || size < info.parameter_size)
            return refused(CUDA_ERROR_INVALID_VALUE);
        if (!buffer.empty())
            std::memcpy(buffer.data(), from, buffer.size());
        return buffer;
    }
    if (info.parameters.empty())
        return buffer;
    if (parameters == nullptr)
        return refused(CUDA_ERROR_INVALID_VALUE);
    for (std::size_t at = 0; at < info.parameters.size(); ++at) {
        if (parameters[at] == nullptr)
            return refused(CUDA_ERROR_INVALID_VALUE);
        std::memcpy(buffer.data() + info.parameters[at].offset, parameters[at], info.parameters[at].size);
    }
    return buffer;
}

struct Wishes {
    bool cooperative = false;
    int priority = 0;
    CUresult refused = CUDA_SUCCESS;
};

// Attributes that change what happens; all others are hints about speed.
Wishes read_attributes(const CUlaunchConfig &config, const KernelInfo &info) {
    Wishes out;
    const auto cluster = [&](unsigned x, unsigned y, unsigned z) {
        if (static_cast<std::uint64_t>(x) * y * z > 1) {
            kLog.error("{}: clusters of {}x{}x{} blocks are not supported", info.name, x, y, z);
            out.refused = CUDA_ERROR_NOT_SUPPORTED;
        }
    };
    if (info.cluster[0] != 0)
        cluster(info.cluster[0], std::max(info.cluster[1], 1U), std::max(info.cluster[2], 1U));
    for (unsigned at = 0; at < config.numAttrs; ++at) {
        const CUlaunchAttribute &attribute = config.attrs[at];
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            out.cooperative = attribute.value.cooperative != 0;
        else if (attribute.id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            out.priority = attribute.value.priority;
        else if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            cluster(attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z);
        else if (attribute.id >= CU_LAUNCH_ATTRIBUTE_MAX)
            out.refused = CUDA_ERROR_INVALID_VALUE;
    }
    return out;
}

CUresult check_shape(const CUlaunchConfig &config, const KernelInfo &info, Function &function) {
    if (!within(config.gridDimX, 2147483647U) || !within(config.gridDimY, 65535) ||
        !within(config.gridDimZ, 65535) || !within(config.blockDimX, 1024) ||
        !within(config.blockDimY, 1024) || !within(config.blockDimZ, 64))
        return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t threads = std::uint64_t{config.blockDimX} * config.blockDimY * config.blockDimZ;
    if (threads > kBlockThreads)
        return CUDA_ERROR_INVALID_VALUE;
    const bool shaped = info.required_threads[0] != 0;
    const auto wanted = [](std::uint32_t required, unsigned found) {
        return std::max(required, 1U) == found;
    };
    if (shaped && !(wanted(info.required_threads[0], config.blockDimX) &&
                    wanted(info.required_threads[1], config.blockDimY) &&
                    wanted(info.required_threads[2], config.blockDimZ)))
        return CUDA_ERROR_INVALID_VALUE;
    if (threads > info.max_threads)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (config.sharedMemBytes > function.dynamic_shared_limit())
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

} // namespace

CUlaunchConfig launch_config(const unsigned (&grid)[3], const unsigned (&block)[3], unsigned shared,
                             CUstream stream) {
    CUlaunchConfig config{};
    config.gridDimX = grid[0];
    config.gridDimY = grid[1];
    config.gridDimZ = grid[2];
    config.blockDimX = block[0];
    config.blockDimY = block[1];
    config.blockDimZ = block[2];
    config.sharedMemBytes = shared;
    config.hStream = stream;
    return config;
}

Result<KernelOperation> make_kernel(Context &context, CUfunction handle, const CUlaunchConfig &config,
                                    void **parameters, void **extra) {
    auto function = function_of(context, handle);
    if (!function)
        return refused(function.error());
    const KernelInfo &info = (*function)->info();
    if (!info.unsupported.empty()) {
        kLog.error("cannot launch {}: {}", info.name, info.unsupported);
        return refused(CUDA_ERROR_NOT_SUPPORTED);
    }
    if (config.numAttrs != 0 && config.attrs == nullptr)
        return refused(CUDA_ERROR_INVALID_VALUE);
    const Wishes wishes = read_attributes(config, info);
    if (wishes.refused != CUDA_SUCCESS)
        return refused(wishes.refused);
    if (const CUresult checked = check_shape(config, info, **function); checked != CUDA_SUCCESS)
        return refused(checked);
    KernelOperation kernel;
    kernel.handle = handle;
    kernel.grid = {config.gridDimX, config.gridDimY, config.gridDimZ};
    kernel.block = {config.blockDimX, config.blockDimY, config.blockDimZ};
    kernel.dynamic_shared = config.sharedMemBytes;
    kernel.cooperative = wishes.cooperative;
    kernel.priority = wishes.priority;
    kernel.attributes.assign(config.attrs, config.attrs + config.numAttrs);
    if (kernel.cooperative) {
        const std::uint64_t blocks = std::uint64_t{kernel.grid.x} * kernel.grid.y * kernel.grid.z;
        const int threads = static_cast<int>(kernel.block.x * kernel.block.y * kernel.block.z);
        const int resident = resident_blocks(**function, threads, kernel.dynamic_shared);
        if (blocks > static_cast<std::uint64_t>(resident) * kMultiprocessors)
            return refused(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    auto buffer = parameter_buffer(info, parameters, extra);
    if (!buffer)
        return refused(buffer.error());
    kernel.parameters = *std::move(buffer);
    kernel.function = *std::move(function);
    return kernel;
}

CUresult launch(Context &context, CUfunction function, const CUlaunchConfig &config, void **parameters,
                void **extra) {
    const auto stream = stream_of(context, config.hStream);
    if (!stream)
        return stream.error();
    if ((*stream)->context_ptr().get() != &context)
        return CUDA_ERROR_INVALID_HANDLE;
    auto kernel = make_kernel(context, function, config, parameters, extra);
    if (!kernel) {
        // Code that any other GPU would have run: whoever does not look at the launch's result must not go on
        // with what was in memory before. (Clusters are asked for: a program may do without.)
        const auto known = function_of(context, function);
        if (known && !(*known)->info().unsupported.empty())
            context.fail(CUDA_ERROR_NOT_SUPPORTED);
        return kernel.error();
    }
    Operation operation(*std::move(kernel));
    if (const auto captured = capture(context, **stream, operation, true))
        return *captured;
    std::get<KernelOperation>(operation).textures = context.textures().objects();
    submit(**stream, std::move(operation));
    return CUDA_SUCCESS;
}

} // namespace singularity::softgpu::driver
