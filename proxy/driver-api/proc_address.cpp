// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/driver-api/proc_address.hpp"

#include <algorithm>

namespace singularity::driver_api {

ProcAddress find_proc_address(std::string_view name, int cuda_version, std::uint64_t flags,
                              int driver_version) {
    if (cuda_version > driver_version || cuda_version < 0 || flags > kProcAddressPerThreadStream)
        return {.valid_arguments = false, .status = SymbolStatus::not_found, .symbol = std::nullopt};
    const auto versions = std::ranges::equal_range(proc_versions(), name, {}, &ProcVersion::name);
    ProcAddress answer;
    // "If a per-thread version is not found, the API will return the legacy version": the rows of a name are
    // in an order in which the last that fits is the one wanted.
    for (const auto &row : versions) {
        if (row.per_thread && flags != kProcAddressPerThreadStream)
            continue;
        if (row.version > cuda_version) {
            if (!answer.symbol)
                answer.status = SymbolStatus::version_not_sufficient;
            continue;
        }
        answer.status = SymbolStatus::success;
        answer.symbol = row.symbol;
    }
    return answer;
}

} // namespace singularity::driver_api
