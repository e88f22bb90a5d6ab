// SPDX-License-Identifier: GPL-2.0-or-later
// cuGetErrorName and cuGetErrorString. A table: the enumerators are cuda.h's, the sentences ours where
// NVIDIA's driver says more or less than its documentation.
#include "proxy/libcuda/cuda.hpp"

#include <algorithm>
#include <array>

namespace {

struct ErrorText {
    CUresult result;
    const char *name;
    const char *text;
};

#define SINGULARITY_ERROR(name, text) {name, #name, text}
constexpr std::array kErrors{
    ErrorText SINGULARITY_ERROR(CUDA_SUCCESS, "no error"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_PROFILER_DISABLED,
                                "profiler disabled while using external profiling tool"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_PROFILER_NOT_INITIALIZED,
                                "profiler not initialized: call cudaProfilerInitialize()"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "function requires a newer driver"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE,
                                "CUDA-capable device(s) is/are busy or unavailable"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_DEVICE_NOT_LICENSED, "device doesn't have valid Grid license"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU,
                                "no kernel image is available for execution on the device"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_ALREADY_ACQUIRED, "resource already acquired"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "resource not mapped as array"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "resource not mapped as pointer"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_CONTEXT_ALREADY_IN_USE,
                                "exclusive-thread device already in use by a different thread"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
                                "peer access is not supported between these two devices"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid OpenGL or DirectX context"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_NVLINK_UNCORRECTABLE,
                                "uncorrectable NVLink error detected during the execution"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                                "the provided PTX was compiled with an unsupported toolchain."),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_JIT_COMPILATION_DISABLED, "PTX JIT compilation was disabled"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
                                "the provided execution affinity is not supported"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
                                "the provided PTX contains unsupported call to cudaDeviceSynchronize"),
    ErrorText SINGULARITY_ERROR(
        CUDA_ERROR_CONTAINED,
        "invalid memory access was contained; the process can go on after its contexts are destroyed"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object initialization failed"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_OPERATING_SYSTEM,
                                "OS call failed or operation not supported on this OS"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_ILLEGAL_STATE,
                                "the operation cannot be performed in the present state"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_LOSSY_QUERY,
                                "attempted introspection would be semantically lossy"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                                "too many resources requested for launch"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,
                                "launch uses incompatible texturing mode"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
                                "cannot set while device is active in this process"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_TOO_MANY_PEERS, "peer mapping resources exhausted"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                                "part or all of the requested memory range is already mapped"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                                "pointer does not correspond to a registered memory region"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_INVALID_ADDRESS_SPACE,
                                "operation not supported on global/shared address space"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_INVALID_PC, "invalid program counter"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
                                "too many blocks in cooperative launch"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory not completely freed"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
                                "system has unsupported display driver / cuda driver combination"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
                                "forward compatibility was attempted on non supported HW"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_MPS_CONNECTION_FAILED,
                                "MPS client failed to connect to the MPS control daemon or the MPS server"),
    ErrorText SINGULARITY_ERROR(
        CUDA_ERROR_MPS_RPC_FAILURE,
        "the remote procedural call between the MPS server and the MPS client failed"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_MPS_SERVER_NOT_READY,
                                "MPS server is not ready to accept new MPS client requests"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
                                "the hardware resources required to create MPS client have been exhausted"),
    ErrorText SINGULARITY_ERROR(
        CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
        "the hardware resources required to support device connections have been exhausted"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_MPS_CLIENT_TERMINATED,
                                "the MPS client has been terminated by the server"),
    ErrorText SINGULARITY_ERROR(
        CUDA_ERROR_CDP_NOT_SUPPORTED,
        "is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it"),
    ErrorText SINGULARITY_ERROR(
        CUDA_ERROR_CDP_VERSION_MISMATCH,
        "unsupported interaction between different versions of CUDA Dynamic Parallelism"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                "operation not permitted when stream is capturing"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                                "operation failed due to a previous error during capture"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
                                "operation would result in a merge of separate capture sequences"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                                "capture was not ended in the same stream as it began"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                                "dependency created on uncaptured work in another stream"),
    ErrorText SINGULARITY_ERROR(
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        "operation would make the legacy stream depend on a capturing blocking stream"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_CAPTURED_EVENT,
                                "operation not permitted on an event last recorded in a capturing stream"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                                "attempt to terminate a thread-local capture sequence from another thread"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_TIMEOUT, "wait operation timed out"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                                "the graph update was not performed because it included changes which "
                                "violated constraints specific to instantiated graph update"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_EXTERNAL_DEVICE,
                                "an async error has occured in external entity outside of CUDA"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_INVALID_CLUSTER_SIZE,
                                "a kernel launch error has occurred due to cluster misconfiguration"),
    ErrorText SINGULARITY_ERROR(
        CUDA_ERROR_FUNCTION_NOT_LOADED,
        "the function handle is not loaded when calling an API that requires a loaded function"),
    ErrorText SINGULARITY_ERROR(
        CUDA_ERROR_INVALID_RESOURCE_TYPE,
        "one or more resources passed in are not valid resource types for the operation"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                                "one or more resources are insufficient or non-applicable for the operation"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_KEY_ROTATION,
                                "an error happened during the key rotation sequence"),
    ErrorText SINGULARITY_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef SINGULARITY_ERROR
static_assert(std::ranges::is_sorted(kErrors, {}, &ErrorText::result));

const ErrorText *find(CUresult result) {
    const auto *const found = std::ranges::lower_bound(kErrors, result, {}, &ErrorText::result);
    return found != kErrors.end() && found->result == result ? found : nullptr;
}

CUresult answer(CUresult result, const char **out, const char *ErrorText::*member) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto *const found = find(result);
    *out = found != nullptr ? found->*member : nullptr;
    return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

} // namespace

extern "C" {

CUresult cuGetErrorName(CUresult error, const char **pStr) { return answer(error, pStr, &ErrorText::name); }
CUresult cuGetErrorString(CUresult error, const char **pStr) { return answer(error, pStr, &ErrorText::text); }

} // extern "C"
