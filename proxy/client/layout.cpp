// SPDX-License-Identifier: GPL-2.0-or-later
// What a launch needs to know of its kernel: asked once, kept with the object.
#include "objects.hpp"
#include "proxy/protocol/code.hpp"

#include <algorithm>

namespace singularity::client {

namespace {

constexpr std::size_t kMostEntries = 4096; // parameters of one kernel

int attribute(const CodeObject &code, const Route &route, CUfunction_attribute which, int otherwise) {
    int value = 0;
    CUresult result = CUDA_SUCCESS;
    if (kind_of(code.handle) == driver_api::kHandleKernel) {
        result = cuKernelGetAttribute(&value, which, std::bit_cast<CUkernel>(code.handle),
                                      route.session->ordinal());
    } else {
        result = cuFuncGetAttribute(&value, which, std::bit_cast<CUfunction>(code.handle));
    }
    return result == CUDA_SUCCESS ? value : otherwise;
}

int most_dynamic_shared(const CodeObject &code, const Route &route, int otherwise) {
    return attribute(code, route, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, otherwise);
}

} // namespace

CUresult layout_of(CodeObject &code, const Route &route, const KernelLayout *&layout) {
    layout = code.layout.load(std::memory_order_acquire);
    if (layout != nullptr) [[likely]]
        return CUDA_SUCCESS;
    const std::scoped_lock lock(code.lock);
    layout = code.layout.load(std::memory_order_acquire);
    if (layout != nullptr)
        return CUDA_SUCCESS;
    auto made = std::make_unique<KernelLayout>();
    const auto result =
        ask(route, protocol::Message<protocol::FunctionLayout>{.fixed = {.function = code.handle}},
            kMostEntries * sizeof(protocol::ParameterPlace), [&](const auto &reply) {
                const auto count = protocol::element_count<protocol::ParameterPlace>(reply.buffers[0]);
                for (std::size_t index = 0; index < count; ++index) {
                    const auto place = protocol::element<protocol::ParameterPlace>(reply.buffers[0], index);
                    made->parameters.push_back({.offset = place.offset, .size = place.size});
                    made->size = std::max(made->size, place.offset + place.size);
                }
            });
    if (result != CUDA_SUCCESS)
        return result;
    if (made->size > protocol::kMostParameters)
        return CUDA_ERROR_NOT_SUPPORTED;
    made->most_threads = attribute(code, route, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                   route.session->attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
    made->static_shared = attribute(code, route, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 0);
    made->most_dynamic_shared = most_dynamic_shared(
        code, route,
        route.session->attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK) - made->static_shared);
    code.layout_owner = std::move(made);
    layout = code.layout_owner.get();
    code.layout.store(layout, std::memory_order_release);
    return CUDA_SUCCESS;
}

void renew_limits(CodeObject &code, const Route &route) {
    const std::scoped_lock lock(code.lock);
    if (auto *const layout = code.layout_owner.get(); layout != nullptr)
        layout->most_dynamic_shared = most_dynamic_shared(code, route, layout->most_dynamic_shared);
}

} // namespace singularity::client
