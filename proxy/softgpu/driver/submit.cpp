// SPDX-License-Identifier: GPL-2.0-or-later
// Putting work in streams: what comes after what.
#include "driver/context.hpp"
#include "driver/event.hpp"
#include "proxy/libcuda/entry.hpp"

#include <new>
#include <utility>

namespace singularity::softgpu::driver {

Result<std::shared_ptr<Stream>> stream_of(Context &context, CUstream handle) {
    if (handle == nullptr)
        handle = libcuda::per_thread_default_stream() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (handle == CU_STREAM_LEGACY) {
        auto stream = context.legacy_stream();
        if (stream == nullptr)
            return refused(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        return stream;
    }
    if (handle == CU_STREAM_PER_THREAD)
        return context.per_thread_stream();
    return streams().get(handle);
}

CompletionPtr submit(Stream &stream, Operation operation, Submission how) {
    Context &context = stream.context();
    if (context.device().has_failed()) [[unlikely]]
        context.fail(CUDA_ERROR_ECC_UNCORRECTABLE);
    auto completion = std::make_shared<Completion>();
    {
        const std::scoped_lock lock(context.submission_mutex());
        std::erase_if(how.after, [](const CompletionPtr &before) { return before->done(); });
        context.implicit_dependencies(stream, how.after);
        const bool idle = stream.last_work == nullptr || stream.last_work->done();
        const bool here = how.may_run_here && idle && how.after.empty();
        // Work that a caller does itself is not in the queue, so its successor must wait for it by name.
        if (!idle)
            how.after.push_back(stream.last_work);
        stream.last_work = completion;
        if (how.record != nullptr)
            how.record->record(completion);
        if (!here) {
            stream.push({std::move(operation), std::move(how.after), completion});
            return completion;
        }
    }
    CUresult result =
        context.cancelled.load(std::memory_order_acquire) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context.error();
    if (result == CUDA_SUCCESS) {
        try {
            result = execute(operation, context, stream);
        } catch (const std::bad_alloc &) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (result != CUDA_SUCCESS)
            context.fail(result);
    }
    operation = EmptyOperation{};
    completion->complete(result);
    return completion;
}

CUresult wait_for(Context &context, const std::vector<CompletionPtr> &completions) {
    for (const CompletionPtr &completion : completions)
        completion->wait();
    context.flush_print();
    if (!context.active)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context.error();
}

} // namespace singularity::softgpu::driver
