// SPDX-License-Identifier: GPL-2.0-or-later
#include "dispatch.hpp"

#include "log.hpp"

#include <exception>

namespace singularity::dispatch {

void hook_failed(Shared &shared, const char *hook) noexcept {
    if (!shared.withdraw())
        return;
    try {
        throw;
    } catch (const std::exception &exception) {
        kLog.error("only forwarding from now on: the policy failed in {}: {}", hook, exception.what());
    } catch (...) {
        kLog.error("only forwarding from now on: the policy failed in {}", hook);
    }
}

} // namespace singularity::dispatch
