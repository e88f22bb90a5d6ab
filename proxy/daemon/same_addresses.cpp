// SPDX-License-Identifier: GPL-2.0-or-later
#include "same_addresses.hpp"

#include "driver_mappings.hpp"

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include <sys/personality.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace singularity::proxyd {

Expected<void> want_same_addresses(char **argv) {
    if (setenv("CUDA_MODULE_LOADING", "EAGER", 1) != 0)
        return std::unexpected(errno_error("set", "CUDA_MODULE_LOADING"));
    if (places_mappings() && setenv("SINGULARITY_SOFTGPU_ADDRESSES", "system", 1) != 0)
        return std::unexpected(errno_error("set", "SINGULARITY_SOFTGPU_ADDRESSES"));
    constexpr unsigned long kAsk = 0xffffffff;
    const int now = personality(kAsk);
    if (now < 0)
        return std::unexpected(errno_error("ask for", "the process's personality"));
    if ((static_cast<unsigned>(now) & ADDR_NO_RANDOMIZE) != 0) {
        // Of a process that has started itself again the kernel says that it is "exe".
        prctl(PR_SET_NAME, std::filesystem::path(argv[0]).filename().c_str());
        return {};
    }
    const auto wanted = static_cast<unsigned>(now) | ADDR_NO_RANDOMIZE;
    // A kernel or a filter that refuses it must not make this loop: it is looked at before the exec.
    if (personality(wanted) < 0)
        return std::unexpected(errno_error("switch off", "address space layout randomisation"));
    if (static_cast<unsigned>(personality(kAsk)) != wanted)
        return std::unexpected(errno_error("switch off", "address space layout randomisation", EPERM));
    execv("/proc/self/exe", argv);
    return std::unexpected(errno_error("start again", "/proc/self/exe"));
}

} // namespace singularity::proxyd
