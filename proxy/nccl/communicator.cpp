// SPDX-License-Identifier: GPL-2.0-or-later
#include "communicator.hpp"

#include "membership.hpp"

namespace singularity::nccl {

Outcome<CommunicatorPointer> known(Library &library, CommunicatorHandle handle, const char *call) {
    if (const auto bad = given(handle, call, "comm"); bad != Result::success)
        return std::unexpected(bad);
    auto found = library.communicators.find(handle);
    if (found == nullptr)
        return refused(Result::invalid_argument, "Error: corrupted comm object detected");
    return found;
}

Result given_if(bool is, const char *call, const char *name) {
    return is ? Result::success : refuse(Result::invalid_argument, "{} : {} argument is NULL", call, name);
}

Result ready(Library &library, Communicator &communicator) {
    // Collectives have no answers: that a member is gone has to be asked for, but not each time.
    constexpr std::chrono::nanoseconds kInterval = std::chrono::seconds(1);
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    if (communicator.state == Result::success && communicator.joined &&
        now - communicator.asked.load(std::memory_order_relaxed) > kInterval.count())
        refresh(library, communicator);
    const auto state = communicator.state.load();
    if (state == Result::in_progress)
        return refuse(Result::invalid_argument,
                      "Attempt to use communicator before the previous operation returned ncclSuccess");
    return state;
}

} // namespace singularity::nccl
