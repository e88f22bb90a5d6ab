// SPDX-License-Identifier: GPL-2.0-or-later
// What functions inside the driver return: a value, or the CUresult that the program will see.
#pragma once

#include "proxy/libcuda/cuda.hpp"

#include <expected>
#include <type_traits>

namespace singularity::softgpu::driver {

template <class T>
using Result = std::expected<T, CUresult>;

[[nodiscard]] inline std::unexpected<CUresult> refused(CUresult why) { return std::unexpected(why); }

// Hands the refusal of a failed call to one's own caller.
template <class T>
[[nodiscard]] std::unexpected<CUresult> refused(const Result<T> &failed) {
    return std::unexpected(failed.error());
}

template <class T>
[[nodiscard]] CUresult store(T *out, const Result<T> &result) {
    if (!result)
        return result.error();
    *out = *result;
    return CUDA_SUCCESS;
}

// The answer of a query: `out` may be a null pointer of the program's.
template <class T>
[[nodiscard]] CUresult give(T *out, const std::type_identity_t<T> &value) {
    if (out == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *out = value;
    return CUDA_SUCCESS;
}

} // namespace singularity::softgpu::driver
