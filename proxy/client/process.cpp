// SPDX-License-Identifier: GPL-2.0-or-later
#include "process.hpp"

#include <memory>

namespace singularity::client {

thread_local bool in_host_function = false;

Process::Process() {
    for (unsigned kind = 1; kind <= driver_api::kHandleKinds; ++kind)
        tables[kind] = std::make_unique<HandleTable>(kind);
}

Process &process() {
    // Never destroyed: see the head of process.hpp.
    static auto &instance = *std::make_unique<Process>().release();
    return instance;
}

CUresult not_ready_slow() {
    if (in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    return process().state.load(std::memory_order_acquire) == State::ready ? CUDA_SUCCESS
                                                                           : CUDA_ERROR_NOT_INITIALIZED;
}

} // namespace singularity::client
