// SPDX-License-Identifier: GPL-2.0-or-later
// Streams, host functions, stream memory operations.
#include "driver/api/entry.hpp"
#include "driver/capture.hpp"
#include "driver/copy.hpp"
#include "driver/event.hpp"
#include "driver/pool.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace singularity::softgpu::driver {

namespace {

constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

CUresult create(Context &context, CUstream *out, unsigned flags, int priority) {
    if (out == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    auto stream = context.make_stream(Stream::Role::created, flags,
                                      std::clamp(priority, kGreatestPriority, kLeastPriority));
    stream->handle = streams().reserve();
    streams().put(stream->handle, stream);
    *out = stream->handle;
    context.add_stream(std::move(stream));
    return CUDA_SUCCESS;
}

// Its work goes on to the end.
CUresult destroy(CUstream handle) {
    const auto stream = streams().take(handle);
    if (stream == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    end_capture_with(*stream);
    const std::scoped_lock lock(stream->context().submission_mutex());
    stream->ended = true;
    return CUDA_SUCCESS;
}

CUresult synchronize(Context &context, Stream &stream) {
    if (const CUresult capturing = waiting_while_capturing(stream); capturing != CUDA_SUCCESS)
        return capturing;
    Context &own = stream.context();
    const CUresult result = wait_for(own, own.outstanding(stream));
    trim_pools(context.device());
    return result;
}

CUresult query(Stream &stream) {
    if (const CUresult capturing = waiting_while_capturing(stream); capturing != CUDA_SUCCESS)
        return capturing;
    Context &own = stream.context();
    if (!own.outstanding(stream).empty())
        return own.error() != CUDA_SUCCESS ? own.error() : CUDA_ERROR_NOT_READY;
    own.flush_print();
    return own.error();
}

CUresult wait_event(Stream &stream, CUevent handle, unsigned flags) {
    if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const auto event = events().get(handle);
    if (!event)
        return event.error();
    if (const auto captured = capture_wait(stream, *event, (flags & CU_EVENT_WAIT_EXTERNAL) != 0))
        return *captured;
    // An event that was never recorded is nothing to wait for.
    if (auto completion = (*event)->completion(); completion != nullptr && !completion->done())
        submit(stream, EmptyOperation{}, {{std::move(completion)}, false, nullptr});
    return CUDA_SUCCESS;
}

CUresult add_callback(Context &context, Stream &stream, CUstream handle, CUstreamCallback callback,
                      void *data, unsigned flags) {
    if (callback == nullptr || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult capturing = waiting_while_capturing(stream); capturing != CUDA_SUCCESS)
        return capturing;
    (void)context;
    submit(stream, CallbackOperation{handle, callback, data});
    return CUDA_SUCCESS;
}

CUresult launch_host(Context &context, Stream &stream, CUhostFn function, void *data) {
    if (function == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const Operation operation(HostOperation{function, data});
    if (const auto captured = capture(context, stream, operation, true))
        return *captured;
    submit(stream, operation);
    return CUDA_SUCCESS;
}

CUresult batch(Context &context, Stream &stream, const CUstreamBatchMemOpParams *list, unsigned count,
               unsigned flags) {
    auto checked = memory_operations(context, list, count, flags);
    if (!checked)
        return checked.error();
    Operation operation(*std::move(checked));
    if (const auto captured = capture(context, stream, operation, true))
        return *captured;
    submit(stream, std::move(operation));
    return CUDA_SUCCESS;
}

template <class T>
CUstreamBatchMemOpParams wait_operation(CUdeviceptr address, T value, unsigned flags) {
    CUstreamBatchMemOpParams one{};
    one.waitValue.operation =
        sizeof(T) == 4 ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WAIT_VALUE_64;
    one.waitValue.address = address;
    one.waitValue.value64 = value;
    if constexpr (sizeof(T) == 4)
        one.waitValue.value = value;
    one.waitValue.flags = flags;
    return one;
}

template <class T>
CUstreamBatchMemOpParams write_operation(CUdeviceptr address, T value, unsigned flags) {
    CUstreamBatchMemOpParams one{};
    one.writeValue.operation =
        sizeof(T) == 4 ? CU_STREAM_MEM_OP_WRITE_VALUE_32 : CU_STREAM_MEM_OP_WRITE_VALUE_64;
    one.writeValue.address = address;
    one.writeValue.value64 = value;
    if constexpr (sizeof(T) == 4)
        one.writeValue.value = value;
    one.writeValue.flags = flags;
    return one;
}

CUresult one_operation(CUstream handle, const CUstreamBatchMemOpParams &operation) {
    return with_stream(
        handle, [&](Context &context, Stream &stream) { return batch(context, stream, &operation, 1, 0); });
}

CUresult get_attribute(Stream &stream, CUstreamAttrID attribute, CUstreamAttrValue *value) {
    if (value == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const std::scoped_lock lock(stream.context().submission_mutex());
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        value->accessPolicyWindow = stream.access_policy;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        value->syncPolicy = stream.synchronization_policy;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value->priority = stream.priority();
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        value->memSyncDomainMap = stream.domain_map;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        value->memSyncDomain = stream.domain;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult set_attribute(Stream &stream, CUstreamAttrID attribute, const CUstreamAttrValue *value) {
    if (value == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const std::scoped_lock lock(stream.context().submission_mutex());
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        stream.access_policy = value->accessPolicyWindow;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        stream.synchronization_policy = value->syncPolicy;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        stream.domain_map = value->memSyncDomainMap;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        stream.domain = value->memSyncDomain;
        return CUDA_SUCCESS;
    default: // a stream's priority is for ever
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult copy_attributes(Stream &target, Stream &source) {
    CUstreamAttrValue value{};
    for (const CUstreamAttrID attribute :
         {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
          CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN})
        if (const CUresult read = get_attribute(source, attribute, &value); read == CUDA_SUCCESS)
            if (const CUresult written = set_attribute(target, attribute, &value); written != CUDA_SUCCESS)
                return written;
    return CUDA_SUCCESS;
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags) {
    return with_context([&](Context &context) { return create(context, phStream, Flags, kLeastPriority); });
}
CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority) {
    return with_context([&](Context &context) { return create(context, phStream, flags, priority); });
}
CUresult cuStreamDestroy(CUstream hStream) {
    return with_driver([&] { return destroy(hStream); });
}
CUresult cuStreamDestroy_v2(CUstream hStream) {
    return with_driver([&] { return destroy(hStream); });
}
CUresult cuStreamSynchronize(CUstream hStream) {
    return with_stream(hStream,
                       [](Context &context, Stream &stream) { return synchronize(context, stream); });
}
CUresult cuStreamQuery(CUstream hStream) {
    return with_stream(hStream, [](Context &, Stream &stream) { return query(stream); });
}
CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
    return with_stream(hStream, [&](Context &, Stream &stream) { return wait_event(stream, hEvent, Flags); });
}
CUresult cuStreamGetPriority(CUstream hStream, int *priority) {
    return with_stream(hStream, [&](Context &, Stream &stream) { return give(priority, stream.priority()); });
}
CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device) {
    return with_stream(hStream, [&](Context &, Stream &stream) {
        return give(device, static_cast<CUdevice>(stream.context().device().ordinal()));
    });
}
CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags) {
    return with_stream(hStream, [&](Context &, Stream &stream) { return give(flags, stream.flags()); });
}
CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId) {
    return with_stream(hStream, [&](Context &, Stream &stream) {
        return give(streamId, static_cast<unsigned long long>(stream.id()));
    });
}
CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx) {
    return with_stream(hStream,
                       [&](Context &, Stream &stream) { return give(pctx, stream.context().handle()); });
}
CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx) {
    return with_stream(hStream, [&](Context &, Stream &stream) {
        if (pGreenCtx != nullptr)
            *pGreenCtx = nullptr;
        return give(pCtx, stream.context().handle());
    });
}
CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                             unsigned int flags) {
    return with_stream(hStream, [&](Context &context, Stream &stream) {
        return add_callback(context, stream, hStream, callback, userData, flags);
    });
}
CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
    return with_stream(hStream, [&](Context &context, Stream &stream) {
        return launch_host(context, stream, fn, userData);
    });
}
CUresult cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream) {
    return with_stream(dstStream, [&](Context &, Stream &target) {
        return with_stream(srcStream,
                           [&](Context &, Stream &source) { return copy_attributes(target, source); });
    });
}
CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value) {
    return with_stream(hStream,
                       [&](Context &, Stream &stream) { return get_attribute(stream, attr, value); });
}
CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *param) {
    return with_stream(hStream,
                       [&](Context &, Stream &stream) { return set_attribute(stream, attr, param); });
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
    return one_operation(stream, write_operation(addr, value, flags));
}
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
    return one_operation(stream, write_operation(addr, value, flags));
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
    return one_operation(stream, write_operation(addr, value, flags));
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
    return one_operation(stream, write_operation(addr, value, flags));
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
    return one_operation(stream, wait_operation(addr, value, flags));
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
    return one_operation(stream, wait_operation(addr, value, flags));
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
    return one_operation(stream, wait_operation(addr, value, flags));
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
    return one_operation(stream, wait_operation(addr, value, flags));
}
CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                            unsigned int flags) {
    return with_stream(
        stream, [&](Context &context, Stream &one) { return batch(context, one, paramArray, count, flags); });
}
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
                               unsigned int flags) {
    return cuStreamBatchMemOp(stream, count, paramArray, flags);
}

} // extern "C"
