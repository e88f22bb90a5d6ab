// SPDX-License-Identifier: GPL-2.0-or-later
// cuLaunch*: a launch is one record in the ring, written in place, without a lock but the ring's.
#include "copy.hpp"
#include "launch.hpp"
#include "managed_variables.hpp"
#include "proxy/protocol/launch.hpp"

#include <algorithm>

using namespace singularity;
using namespace singularity::client;

namespace {

struct Launch {
    protocol::LaunchShape shape;
    CUstream stream;
    void **kernel_params;
    void **extra;
};

// Whether a driver may refuse it for reasons that only it knows: how many blocks fit on the device at the
// same time.
bool refused_at_once(const protocol::LaunchShape &shape,
                     std::span<const protocol::LaunchAttribute> attributes) {
    return (shape.flags & protocol::kLaunchCooperative) != 0 ||
           std::ranges::any_of(attributes, [](const protocol::LaunchAttribute &attribute) {
               return attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE ||
                      attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
           });
}

// A generated call with a reply brings the error of what was sent before it; this one changes nothing.
CUresult first_error(const Route &route) {
    CUfunc_cache unused{};
    const OnContext scope(*route.context);
    return cuCtxGetCacheConfig(&unused);
}

CUresult launch(CUfunction function, Launch &call, std::span<const protocol::LaunchAttribute> attributes) {
    std::uint64_t stream = 0;
    Route route;
    if (const auto bad = stream_route(call.stream, stream, route); bad != CUDA_SUCCESS)
        return bad;
    Launchable what;
    if (const auto bad = launchable(function, route, what); bad != CUDA_SUCCESS)
        return bad;
    ParameterSource source;
    if (const auto bad = parameter_source(call.kernel_params, call.extra, source); bad != CUDA_SUCCESS)
        return bad;
    std::size_t bytes = 0;
    if (const auto bad = parameter_bytes(*what.layout, source, bytes); bad != CUDA_SUCCESS)
        return bad;
    call.shape.function = what.code->handle;
    if (const auto bad = check_shape(route, what, call.shape); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = move_managed_variables(*what.code, route, stream, Flow::to_device);
        bad != CUDA_SUCCESS)
        return bad;
    const bool with_attributes = (call.shape.flags & protocol::kLaunchWithConfig) != 0;
    auto record = route.session->end().begin(
        route.context->handle, protocol::kRequestHead<protocol::LaunchKernel> + protocol::padded(bytes) +
                                   protocol::padded(attributes.size_bytes()));
    if (!record)
        return failure_of(record.error());
    const auto places = protocol::encode_in_place(
        protocol::LaunchKernel{.shape = call.shape, .stream = stream},
        {bytes, with_attributes ? attributes.size_bytes() : protocol::kAbsent}, record->message());
    copy_parameters(*what.layout, source, places[0]);
    if (!attributes.empty())
        std::memcpy(places[1].data(), attributes.data(), attributes.size_bytes());
    record->commit();
    if (const auto bad = move_managed_variables(*what.code, route, stream, Flow::from_device);
        bad != CUDA_SUCCESS)
        return bad;
    return refused_at_once(call.shape, attributes) ? first_error(route) : CUDA_SUCCESS;
}

CUresult launch_callback(CUstream stream, channel::CallbackKind kind, const void *function, void *data,
                         unsigned flags) {
    std::uint64_t wire = 0;
    Route route;
    if (const auto bad = stream_route(stream, wire, route); bad != CUDA_SUCCESS)
        return bad;
    if (function == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    return post(route, protocol::Message<protocol::LaunchHostFunction>{
                           .fixed = {.stream = wire,
                                     .function = std::bit_cast<std::uint64_t>(function),
                                     .data = std::bit_cast<std::uint64_t>(data),
                                     .kind = static_cast<std::uint32_t>(kind),
                                     .flags = flags}});
}

} // namespace

extern "C" {

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra) {
    Launch call{.shape = {.grid = {gridDimX, gridDimY, gridDimZ},
                          .block = {blockDimX, blockDimY, blockDimZ},
                          .shared_bytes = sharedMemBytes},
                .stream = hStream,
                .kernel_params = kernelParams,
                .extra = extra};
    return launch(f, call, {});
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                   void **kernelParams) {
    Launch call{.shape = {.grid = {gridDimX, gridDimY, gridDimZ},
                          .block = {blockDimX, blockDimY, blockDimZ},
                          .shared_bytes = sharedMemBytes,
                          .flags = protocol::kLaunchCooperative},
                .stream = hStream,
                .kernel_params = kernelParams,
                .extra = nullptr};
    return launch(f, call, {});
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (config == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    std::vector<protocol::LaunchAttribute> attributes;
    if (const auto bad = launch_attributes(config->attrs, config->numAttrs, attributes); bad != CUDA_SUCCESS)
        return bad;
    Launch call{.shape = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                          .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                          .shared_bytes = config->sharedMemBytes,
                          .flags = protocol::kLaunchWithConfig},
                .stream = config->hStream,
                .kernel_params = kernelParams,
                .extra = extra};
    return launch(f, call, attributes);
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
    return launch_callback(hStream, channel::CallbackKind::host_function, std::bit_cast<const void *>(fn),
                           userData, 0);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                             unsigned int flags) {
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return launch_callback(hStream, channel::CallbackKind::stream_callback,
                           std::bit_cast<const void *>(callback), userData, flags);
}

} // extern "C"
