// SPDX-License-Identifier: GPL-2.0-or-later
// Contexts. A client's primary context is a context of its session's own: one client's sticky error is not
// another's.
#include "handlers.hpp"
#include "shared_events.hpp"

#include <algorithm>
#include <vector>

namespace singularity::proxyd::handlers {

using driver_api::kHandleContext;

namespace {
// Threads of collectives see within it that they have to end, if the driver lets them.
constexpr std::chrono::seconds kForCollectives{5};
} // namespace

CUresult handle(Call &call, const Request<protocol::CreateContext> &request,
                Reply<protocol::CreateContext> & /*reply*/) {
    const auto &driver = call.driver();
    const auto &fixed = request.fixed;
    const auto device = call.session().back_end().device();
    const auto count = protocol::element_count<CUexecAffinityParam>(request.buffers[0]);
    if (request.buffers[0].bytes.size() != count * sizeof(CUexecAffinityParam))
        return CUDA_ERROR_INVALID_VALUE;
    CUcontext context = nullptr;
    auto result = CUDA_SUCCESS;
    if (count == 0) {
        result = driver.cuCtxCreate_v2(&context, fixed.flags, device);
    } else {
        if (driver.cuCtxCreate_v3 == nullptr)
            return CUDA_ERROR_NOT_SUPPORTED;
        const auto affinity = call.elements<CUexecAffinityParam>(count);
        for (std::size_t index = 0; index < count; ++index)
            affinity[index] = protocol::element<CUexecAffinityParam>(request.buffers[0], index);
        result =
            driver.cuCtxCreate_v3(&context, affinity.data(), static_cast<int>(count), fixed.flags, device);
    }
    if (result != CUDA_SUCCESS)
        return result;
    // It has become this thread's current one, which is not what records say.
    CUcontext popped = nullptr;
    static_cast<void>(driver.cuCtxPopCurrent_v2(&popped));
    call.add(kHandleContext, fixed.context, context);
    call.session().contexts_changed();
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::DestroyContext> &request,
                Reply<protocol::DestroyContext> & /*reply*/) {
    const auto handle = request.fixed.context;
    const auto context = call.object<CUcontext>(kHandleContext, handle);
    if (!context || *context == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    auto &session = call.session();
    // Streams may wait for collectives that will not come.
    session.communicators().end_those_of(handle, Deadline::after(kForCollectives));
    // What the device has printed comes out only with a wait: the destruction drops it.
    static_cast<void>(call.driver().cuCtxSetCurrent(*context));
    if (call.driver().cuCtxSynchronize != nullptr)
        static_cast<void>(call.driver().cuCtxSynchronize());
    session.slabs().keep(handle, true);
    const auto asked = session.no_questions(handle);
    for (const auto &[event, real] : call.objects().handles(driver_api::kHandleEvent))
        if (call.objects().context_of(event) == handle)
            SharedEvents::all().leave({.session = &session, .handle = event});
    session.event_times().forget(call.driver(), handle);
    const auto result = call.driver().cuCtxDestroy_v2(*context);
    if (result != CUDA_SUCCESS) {
        session.slabs().keep(handle, false);
        return result;
    }
    call.objects().forget_context(handle);
    call.objects().remove(kHandleContext, handle);
    session.contexts_changed();
    session.unmap_slabs_of(handle);
    session.addresses().forget_foreign();
    return CUDA_SUCCESS;
}

} // namespace singularity::proxyd::handlers
