// SPDX-License-Identifier: GPL-2.0-or-later
// Kernel launches, host functions.
#include "handlers.hpp"
#include "launch_config.hpp"

#include <cstring>
#include <utility>

namespace singularity::proxyd::handlers {

CUresult read_attribute(Call &call, const protocol::LaunchAttribute &wire, CUlaunchAttribute &out) {
    static_assert(sizeof(CUlaunchAttributeValue) == sizeof(wire.value));
    out.id = static_cast<CUlaunchAttributeID>(wire.id);
    std::memcpy(&out.value, wire.value.data(), sizeof(out.value));
    const auto translate = [&](CUevent &event) {
        const auto real = call.object<CUevent>(driver_api::kHandleEvent, std::bit_cast<std::uint64_t>(event));
        event = real.value_or(nullptr);
        return real.has_value();
    };
    switch (out.id) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        return translate(out.value.programmaticEvent.event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return translate(out.value.launchCompletionEvent.event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        // Gives the program an object of the device's own.
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_SUCCESS;
    }
}

CUresult fill(Call &call, const protocol::LaunchShape &shape, CUstream stream,
              const driver_api::View &attributes, LaunchConfig &out) {
    out.config.gridDimX = shape.grid[0];
    out.config.gridDimY = shape.grid[1];
    out.config.gridDimZ = shape.grid[2];
    out.config.blockDimX = shape.block[0];
    out.config.blockDimY = shape.block[1];
    out.config.blockDimZ = shape.block[2];
    out.config.sharedMemBytes = shape.shared_bytes;
    out.config.hStream = stream;
    out.config.attrs = out.attributes.data();
    unsigned count = 0;
    for (std::size_t index = 0; index < protocol::element_count<protocol::LaunchAttribute>(attributes) &&
                                index < protocol::kMostLaunchAttributes;
         ++index)
        if (const auto result =
                read_attribute(call, protocol::element<protocol::LaunchAttribute>(attributes, index),
                               out.attributes[count++]);
            result != CUDA_SUCCESS)
            return result;
    if ((shape.flags & protocol::kLaunchCooperative) != 0) {
        auto &cooperative = out.attributes[count++];
        cooperative = {};
        cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        cooperative.value.cooperative = 1;
    }
    out.config.numAttrs = count;
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::LaunchKernel> &request) {
    const auto &shape = request.fixed.shape;
    const auto function = call.object<CUfunction>(driver_api::kHandleFunction, shape.function);
    const auto stream = call.stream(request.fixed.stream);
    if (!function || *function == nullptr || !stream)
        return CUDA_ERROR_INVALID_HANDLE;
    const auto &driver = call.driver();
    ParameterBuffer parameters(request.buffers[0]);
    if (shape.flags == 0 && !request.buffers[1].present) {
        if (driver.cuLaunchKernel == nullptr)
            return CUDA_ERROR_NOT_SUPPORTED;
        return driver.cuLaunchKernel(*function, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
                                     shape.block[1], shape.block[2], shape.shared_bytes, *stream, nullptr,
                                     parameters.extra());
    }
    if (driver.cuLaunchKernelEx == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    LaunchConfig config;
    if (const auto result = fill(call, shape, *stream, request.buffers[1], config); result != CUDA_SUCCESS)
        return result;
    return driver.cuLaunchKernelEx(&config.config, *function, nullptr, parameters.extra());
}

CUresult handle(Call &call, const Request<protocol::LaunchHostFunction> &request) {
    const auto &fixed = request.fixed;
    const auto stream = call.stream(fixed.stream);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    const auto &driver = call.driver();
    auto &callbacks = call.session().callbacks();
    const bool host_function = fixed.kind == std::to_underlying(channel::CallbackKind::host_function);
    if (host_function ? driver.cuLaunchHostFunc == nullptr : driver.cuStreamAddCallback == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    auto *mine = callbacks.add({.function = fixed.function,
                                .data = fixed.data,
                                .stream = fixed.stream,
                                .kind = fixed.kind,
                                .status = 0},
                               !call.session().capturing(*stream));
    const auto result =
        host_function ? driver.cuLaunchHostFunc(*stream, &Callbacks::host_function, mine)
                      : driver.cuStreamAddCallback(*stream, &Callbacks::stream_callback, mine, fixed.flags);
    if (result != CUDA_SUCCESS)
        callbacks.drop(mine);
    return result;
}

CUresult handle(Call &call, const Request<protocol::OccupancyOfClusters> &request,
                Reply<protocol::OccupancyOfClusters> &reply) {
    const auto &shape = request.fixed.shape;
    const auto function = call.object<CUfunction>(driver_api::kHandleFunction, shape.function);
    if (!function || *function == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    const bool most =
        request.fixed.question == std::to_underlying(protocol::ClusterQuestion::most_active_clusters);
    const auto ask =
        most ? call.driver().cuOccupancyMaxActiveClusters : call.driver().cuOccupancyMaxPotentialClusterSize;
    if (ask == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    LaunchConfig config;
    if (const auto result = fill(call, shape, nullptr, request.buffers[0], config); result != CUDA_SUCCESS)
        return result;
    int value = 0;
    const auto result = ask(&value, *function, &config.config);
    reply.fixed.value = value;
    return result;
}

} // namespace singularity::proxyd::handlers
