// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/driver-api/proc_address.hpp"

#include <algorithm>

namespace singularity::driver_api {

ProcAddress find_proc_address(std::string_view name, int cuda_version, std::uint64_t flags) {
    if ((flags & ~(kProcAddressLegacyStream | kProcAddressPerThreadStream)) != 0)
        return {.valid_arguments = false, .status = SymbolStatus::not_found, .symbol = std::nullopt};
    const auto versions = std::ranges::equal_range(proc_versions(), name, {}, &ProcVersion::name);
    // A name without per-thread variants means its functions, whatever the flags; one that has them means
    // these, also where the version asked for is too old for any of them.
    const bool per_thread =
        (flags & kProcAddressPerThreadStream) != 0 && std::ranges::any_of(versions, &ProcVersion::per_thread);
    ProcAddress answer;
    // In the order of versions: the last that fits is the one wanted.
    for (const auto &row : versions) {
        if (row.per_thread != per_thread)
            continue;
        if (static_cast<unsigned>(row.version) > static_cast<unsigned>(cuda_version)) {
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
