// SPDX-License-Identifier: GPL-2.0-or-later
// What this process has: its sessions, its window, its handles. Made by cuInit and never destroyed, since
// programs call the driver from their own exit handlers and destructors.
#pragma once

#include "driver_api/handles.hpp"
#include "handles.hpp"
#include "proxy/libcuda/cuda.hpp"
#include "session.hpp"
#include "window.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace singularity::client {

enum class State : int { untouched, ready, failed, forked };

struct Process {
    std::atomic<State> state = State::untouched;
    std::mutex start;
    CUresult failure = CUDA_SUCCESS; // what cuInit returned when it failed

    std::array<std::uint64_t, 2> key{};             // random: what images of this process are known by
    std::vector<std::unique_ptr<Session>> sessions; // by ordinal; does not change once ready
    WindowPlan window;
    std::mutex host_addresses_lock;
    RangeAllocator host_addresses{Range{}};

    std::array<std::unique_ptr<HandleTable>, driver_api::kHandleKinds + 1> tables;
    std::atomic<std::uint64_t> next_context_id = 1;
    // Captures that have begun and not ended: while there are none, nobody need ask whether a stream
    // captures.
    std::atomic<int> captures = 0;

    Process();
    [[nodiscard]] Session *session(int ordinal) {
        return ordinal >= 0 && static_cast<std::size_t>(ordinal) < sessions.size()
                   ? sessions[static_cast<std::size_t>(ordinal)].get()
                   : nullptr;
    }
    [[nodiscard]] HandleTable &table(unsigned kind) { return *tables[kind]; }
};

[[nodiscard]] Process &process();

// Every entry point begins with
//     if (const auto bad = not_ready(); bad != CUDA_SUCCESS) return bad;
// NOT_INITIALIZED before cuInit and in a forked child; NOT_PERMITTED inside a host function.
[[nodiscard]] CUresult not_ready_slow();
extern thread_local bool in_host_function __attribute__((tls_model("initial-exec")));
[[nodiscard]] inline CUresult not_ready() {
    if (process().state.load(std::memory_order_acquire) == State::ready && !in_host_function) [[likely]]
        return CUDA_SUCCESS;
    return not_ready_slow();
}

} // namespace singularity::client
