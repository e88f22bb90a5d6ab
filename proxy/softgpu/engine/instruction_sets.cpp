// SPDX-License-Identifier: GPL-2.0-or-later
#include "engine/handlers.hpp"

#include <cstdlib>
#include <cstring>

namespace singularity::softgpu::engine {

#ifdef SINGULARITY_LANES_V3 // not in builds with sanitizers
const HandlerSet &handlers() {
    static const HandlerSet &chosen = []() -> const HandlerSet & {
        const char *oldest = std::getenv("SINGULARITY_SOFTGPU_BASELINE");
        const bool newer = __builtin_cpu_supports("x86-64-v3") != 0;
        return newer && (oldest == nullptr || std::strcmp(oldest, "1") != 0) ? lanes_v3::kHandlers
                                                                             : lanes_base::kHandlers;
    }();
    return chosen;
}
#else
const HandlerSet &handlers() { return lanes_base::kHandlers; }
#endif

} // namespace singularity::softgpu::engine
