// SPDX-License-Identifier: GPL-2.0-or-later
// The stack of contexts that every thread has.
#include "common/thread_owned.hpp"
#include "driver/context.hpp"

#include <utility>

namespace singularity::softgpu::driver {

namespace {

struct Entry {
    CUcontext handle = nullptr;
    std::shared_ptr<Context> context; // as last seen behind the handle
};

std::vector<Entry> &stack() { return ThreadOwned<std::vector<Entry>>::mine(); }

} // namespace

CUcontext current_handle() { return stack().empty() ? nullptr : stack().back().handle; }

void push_current(CUcontext context) { stack().push_back({context, contexts().find(context)}); }

Result<CUcontext> pop_current() {
    if (stack().empty())
        return refused(CUDA_ERROR_INVALID_CONTEXT);
    const CUcontext handle = stack().back().handle;
    stack().pop_back();
    return handle;
}

void set_current(CUcontext context) {
    if (!stack().empty()) {
        if (stack().back().handle == context)
            return;
        stack().pop_back();
    }
    if (context != nullptr)
        push_current(context);
}

Result<std::shared_ptr<Context>> current_context() {
    if (stack().empty())
        return refused(CUDA_ERROR_INVALID_CONTEXT);
    Entry &top = stack().back();
    if (top.context == nullptr || !top.context->active) {
        // A primary context comes back under its handle.
        top.context = contexts().find(top.handle);
        if (top.context == nullptr || !top.context->active)
            return refused(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    return top.context;
}

Result<std::shared_ptr<Context>> context_of(CUcontext handle) {
    if (handle == nullptr)
        return current_context();
    auto context = contexts().find(handle);
    if (context == nullptr)
        return refused(CUDA_ERROR_INVALID_CONTEXT);
    if (!context->active)
        return refused(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return context;
}

} // namespace singularity::softgpu::driver
