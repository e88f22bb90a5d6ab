// SPDX-License-Identifier: GPL-2.0-or-later
#include "suspension.hpp"

#include "group.hpp"
#include "membership.hpp"

namespace singularity::nccl {

namespace {

// wish: whether it is to be suspended, which it must not be already.
Result change(Library &library, CommunicatorHandle handle, const char *call, bool wish) {
    const auto communicator = known(library, handle, call);
    if (!communicator)
        return communicator.error();
    if (const auto bad = ready(library, **communicator); bad != Result::success)
        return bad;
    if ((*communicator)->suspended.exchange(wish) == wish)
        return refuse(Result::invalid_usage, "{} : the communicator is {}", call,
                      wish ? "suspended already" : "not suspended");
    return Result::success;
}

} // namespace

Result suspend(Library &library, CommunicatorHandle handle, int flags) {
    constexpr const char *kName = "ncclCommSuspend";
    if ((flags & kSuspendMemory) != 0)
        return Group::mine().note_if_open(change(library, handle, kName, true));
    const auto communicator = known(library, handle, kName);
    return communicator ? ready(library, **communicator) : communicator.error();
}

Result resume(Library &library, CommunicatorHandle handle) {
    return Group::mine().note_if_open(change(library, handle, "ncclCommResume", false));
}

Result memory_statistic(Library &library, CommunicatorHandle handle, MemoryStatistic which,
                        std::uint64_t *out) {
    constexpr const char *kName = "ncclCommMemStats";
    const auto communicator = known(library, handle, kName);
    if (!communicator)
        return communicator.error();
    if (const auto bad = ready(library, **communicator); bad != Result::success)
        return bad;
    if (const auto bad = given(out, kName, "value"); bad != Result::success)
        return bad;
    switch (which) {
    case MemoryStatistic::can_be_suspended:
    case MemoryStatistic::persistent:
    case MemoryStatistic::total:
        *out = 0;
        return Result::success;
    case MemoryStatistic::is_suspended:
        *out = (*communicator)->suspended ? 1 : 0;
        return Result::success;
    }
    return refuse(Result::invalid_argument, "{} : there is no statistic {}", kName, static_cast<int>(which));
}

} // namespace singularity::nccl
