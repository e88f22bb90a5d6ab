// SPDX-License-Identifier: GPL-2.0-or-later
// cuGetProcAddress: answered from generated data, see proxy/driver-api/proc_address.hpp.
#include "proxy/driver-api/proc_address.hpp"

#include "proxy/libcuda/cuda.hpp"
#include "proxy/libcuda/entry.hpp"

#include <cstdint>

extern "C" {

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus) {
    if (symbol == nullptr || pfn == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = nullptr;
    const auto found = singularity::driver_api::find_proc_address(symbol, cudaVersion, flags);
    if (!found.valid_arguments)
        return CUDA_ERROR_INVALID_VALUE;
    if (symbolStatus != nullptr)
        *symbolStatus = static_cast<CUdriverProcAddressQueryResult>(found.status);
    if (found.symbol) {
        *pfn = singularity::libcuda::address_of(*found.symbol);
        return CUDA_SUCCESS;
    }
    // A caller that asks for the status learns of the failure from it.
    return symbolStatus != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
    return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr);
}

} // extern "C"
