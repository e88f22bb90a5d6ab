// SPDX-License-Identifier: GPL-2.0-or-later
// cuGetProcAddress: which symbol a name means to a program built for some CUDA version.
// Rules: cuda.h, documentation of cuGetProcAddress, CUdriverProcAddress_flags and
// CUdriverProcAddressQueryResult.
#pragma once

#include "proxy/driver-api/api.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace singularity::driver_api {

// CU_GET_PROC_ADDRESS_*: the values of cuda.h, checked in the unit test.
inline constexpr std::uint64_t kProcAddressDefault = 0;
inline constexpr std::uint64_t kProcAddressLegacyStream = 1;
inline constexpr std::uint64_t kProcAddressPerThreadStream = 2;

enum class SymbolStatus : std::uint8_t { success = 0, not_found = 1, version_not_sufficient = 2 };

struct ProcVersion {
    std::string_view name;
    int version; // CUDA version, as in 11020, with which the symbol came
    bool per_thread;
    ApiId symbol;
};

// Ordered by name, then legacy before per-thread, then version.
[[nodiscard]] std::span<const ProcVersion> proc_versions();

struct ProcAddress {
    bool valid_arguments = true; // false: CUDA_ERROR_INVALID_VALUE
    SymbolStatus status = SymbolStatus::not_found;
    std::optional<ApiId> symbol; // set exactly if status is success
};

// As NVIDIA's driver answers, which is asked in tests/driver: a version later than the driver's own means the
// latest functions, and so does a negative one, since versions have no sign; with both flags per-thread is
// meant.
[[nodiscard]] ProcAddress find_proc_address(std::string_view name, int cuda_version, std::uint64_t flags);

} // namespace singularity::driver_api
