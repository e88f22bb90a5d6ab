// SPDX-License-Identifier: GPL-2.0-or-later
// cuIpc*: device memory that several processes of a virtual node have.
#include "capture_modes.hpp"
#include "graph_memory.hpp"
#include "opened_memory.hpp"

#include <cstring>

using namespace singularity;
using namespace singularity::client;

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    const auto allocation = find_device(dptr);
    // Of pools, of graphs, of others: as the driver, no.
    if (pHandle == nullptr || !allocation || allocation->pool != 0 || allocation->shared == Shared::opened ||
        graph_memory_at(allocation->range.address))
        return CUDA_ERROR_INVALID_VALUE;
    MemoryHandle handle;
    if (const auto bad = export_memory(*allocation, handle); bad != CUDA_SUCCESS)
        return bad;
    std::memcpy(pHandle->reserved, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (pdptr == nullptr || (Flags & ~unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS}) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    MemoryHandle wanted;
    std::memcpy(&wanted, handle.reserved, sizeof(wanted));
    std::uint64_t address = 0;
    const auto result = open_memory(*context, wanted, address);
    if (result == CUDA_SUCCESS)
        *pdptr = address;
    return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
    return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    if (const auto bad = unsafe_call(); bad != CUDA_SUCCESS)
        return bad;
    return close_memory(dptr);
}

} // extern "C"
