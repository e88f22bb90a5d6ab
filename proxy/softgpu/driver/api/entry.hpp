// SPDX-License-Identifier: GPL-2.0-or-later
// What every entry point does before and after its own work: nothing but a CUresult leaves it.
#pragma once

#include "driver/context.hpp"
#include "driver/module.hpp"
#include "driver/platform.hpp"

#include <exception>
#include <new>
#include <utility>

namespace singularity::softgpu::driver {

template <class Work>
CUresult guarded(Work &&work) noexcept {
    try {
        return std::forward<Work>(work)();
    } catch (const std::bad_alloc &) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    } catch (const std::exception &) {
        return CUDA_ERROR_UNKNOWN;
    }
}

// Needs cuInit, and no context.
template <class Work>
CUresult with_driver(Work &&work) noexcept {
    return guarded([&] {
        if (const CUresult ready = initialized(); ready != CUDA_SUCCESS)
            return ready;
        return std::forward<Work>(work)();
    });
}

// work(Device &)
template <class Work>
CUresult with_device(CUdevice ordinal, Work &&work) noexcept {
    return with_driver([&] {
        const auto device = platform().device(ordinal);
        return device ? std::forward<Work>(work)(**device) : device.error();
    });
}

// Needs a current context; one that has failed too. work(Context &)
template <class Work>
CUresult with_any_context(Work &&work) noexcept {
    return with_driver([&] {
        const auto context = current_context();
        return context ? std::forward<Work>(work)(**context) : context.error();
    });
}

// Needs a current context that has not failed. Not for host functions. work(Context &)
template <class Work>
CUresult with_context(Work &&work) noexcept {
    return with_any_context([&](Context &context) {
        if (in_host_function())
            return CUDA_ERROR_NOT_PERMITTED;
        if (const CUresult failed = context.error(); failed != CUDA_SUCCESS)
            return failed;
        return std::forward<Work>(work)(context);
    });
}

// with_context(), and the stream that the handle means there. work(Context &, Stream &)
template <class Work>
CUresult with_stream(CUstream handle, Work &&work) noexcept {
    return with_context([&](Context &context) {
        const auto stream = stream_of(context, handle);
        return stream ? std::forward<Work>(work)(context, **stream) : stream.error();
    });
}

// work(Function &): of a CUfunction, or of a CUkernel in the current context.
template <class Work>
CUresult with_function(CUfunction handle, Work &&work) noexcept {
    return with_context([&](Context &context) {
        const auto function = function_of(context, handle);
        return function ? std::forward<Work>(work)(**function) : function.error();
    });
}

} // namespace singularity::softgpu::driver
