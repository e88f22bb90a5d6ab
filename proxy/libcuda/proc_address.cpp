// SPDX-License-Identifier: GPL-2.0-or-later
// cuGetProcAddress: answered from generated data, see proxy/driver-api/proc_address.hpp. That a name is not
// found is told by the status alone in version 2 of the function, asked for or not, and by the result in
// version 1.
#include "proxy/driver-api/proc_address.hpp"

#include "proxy/libcuda/cuda.hpp"
#include "proxy/libcuda/entry.hpp"

#include <cstdint>

extern "C" {

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus) {
    if (symbol == nullptr || pfn == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    const auto found = singularity::driver_api::find_proc_address(symbol, cudaVersion, flags);
    if (!found.valid_arguments)
        return CUDA_ERROR_INVALID_VALUE;
    if (symbolStatus != nullptr)
        *symbolStatus = static_cast<CUdriverProcAddressQueryResult>(found.status);
    *pfn = found.symbol ? singularity::libcuda::address_of(*found.symbol) : nullptr;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
    void *found = nullptr;
    if (const auto result = cuGetProcAddress_v2(symbol, &found, cudaVersion, flags, nullptr);
        result != CUDA_SUCCESS)
        return result;
    if (found == nullptr)
        return CUDA_ERROR_NOT_FOUND;
    if (pfn == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = found;
    return CUDA_SUCCESS;
}

} // extern "C"
