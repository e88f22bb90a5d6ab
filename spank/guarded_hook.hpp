// SPDX-License-Identifier: GPL-2.0-or-later
// What Slurm calls of the SPANK plugin, without the exceptions.
#pragma once

#include "common/log.hpp"
#include "slurm_spank.hpp"

#include <exception>

namespace singularity::spank {

// Nothing may cross the C edge: what does get here ends as an error of the command or the step.
template <class Function>
int guarded(const Function &function) noexcept {
    try {
        return function();
    } catch (const std::exception &error) {
        log::Channel("spank").error("unexpected error: {}", error.what());
    } catch (...) {
        log::Channel("spank").error("unexpected error of unknown type");
    }
    return ESPANK_ERROR;
}

// Of hooks that must not be passed over when they fail: Slurm takes what is positive, as an spank_err_t is,
// for success.
inline int to_slurm(int result) noexcept { return result == ESPANK_SUCCESS ? ESPANK_SUCCESS : -1; }

} // namespace singularity::spank
