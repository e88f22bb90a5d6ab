// SPDX-License-Identifier: GPL-2.0-or-later
// Communicators end, and are asked about.
#include "common/deadline.hpp"
#include "group.hpp"
#include "lifecycle.hpp"
#include "membership.hpp"

#include <chrono>

namespace singularity::nccl {

namespace {

constexpr std::chrono::seconds kBackgroundEnds{60};

// What was begun in the background has been cancelled: it ends soon.
Result await_background(Communicator &communicator) {
    const auto background = [&] {
        const std::scoped_lock lock(communicator.background_lock);
        return communicator.background;
    }();
    if (background.valid() && background.wait_for(kBackgroundEnds) != std::future_status::ready)
        return refuse(Result::system_error, "what was begun on the communicator has not ended within {} s",
                      kBackgroundEnds.count());
    return Result::success;
}

template <class Value>
Result answer(Library &library, CommunicatorHandle handle, const char *call, const char *name, int *out,
              Value value) {
    const auto communicator = known(library, handle, call);
    if (!communicator)
        return communicator.error();
    if (const auto bad = given(out, call, name); bad != Result::success)
        return bad;
    if (const auto bad = ready(library, **communicator); bad != Result::success)
        return bad;
    *out = value(**communicator);
    return Result::success;
}

} // namespace

Result finalize(Library &library, CommunicatorHandle handle) {
    if (handle == nullptr)
        return Result::success;
    const auto found = known(library, handle, "ncclCommFinalize");
    if (!found)
        return Group::mine().note_if_open(found.error());
    const auto &communicator = *found;
    return in_group(library, [&](Group &group) {
        if (const auto bad = ready(library, *communicator); bad != Result::success)
            return bad;
        if (communicator->finalized.exchange(true))
            return refuse(Result::invalid_argument, "ncclCommFinalize : it has been called before");
        return group.add({.lane = communicator,
                          .subject = communicator,
                          .run =
                              [&library, communicator] {
                                  const auto flushed = flush(library, *communicator);
                                  return flushed == Result::success
                                             ? leave(library, *communicator, Leave::when_complete)
                                             : flushed;
                              },
                          .drop = [communicator] { communicator->finalized = false; }});
    });
}

Result destroy(Library &library, CommunicatorHandle handle) {
    if (handle == nullptr)
        return Result::success;
    const auto found = known(library, handle, "ncclCommDestroy");
    if (!found)
        return Group::mine().note_if_open(found.error());
    const auto &communicator = *found;
    return in_group(library, [&](Group &group) {
        if (const auto bad = ready(library, *communicator); bad != Result::success)
            return bad;
        return group.add({.lane = communicator,
                          .subject = communicator,
                          .run =
                              [&library, communicator] {
                                  auto result = Result::success;
                                  if (!communicator->finalized.exchange(true)) {
                                      result = flush(library, *communicator);
                                      const auto left = leave(library, *communicator,
                                                              result == Result::success ? Leave::when_complete
                                                                                        : Leave::abort);
                                      if (result == Result::success)
                                          result = left;
                                  }
                                  library.communicators.remove(communicator->handle());
                                  return result;
                              },
                          .drop = [] {},
                          .waits = true});
    });
}

Result abort(Library &library, CommunicatorHandle handle) {
    if (handle == nullptr)
        return Result::success;
    const auto communicator = known(library, handle, "ncclCommAbort");
    if (!communicator)
        return communicator.error();
    auto &one = **communicator;
    // First what is under way, which may be waiting for members that will never come.
    one.cancelled = true;
    one.finalized = true;
    const auto left = leave(library, one, Leave::abort);
    if (const auto bad = await_background(one); bad != Result::success)
        return bad;
    // It may have joined in the meantime.
    static_cast<void>(leave(library, one, Leave::abort));
    library.communicators.remove(handle);
    return left;
}

Result revoke(Library &library, CommunicatorHandle handle, int flags) {
    if (handle == nullptr)
        return Result::success;
    const auto communicator = known(library, handle, "ncclCommRevoke");
    if (!communicator)
        return communicator.error();
    auto &one = **communicator;
    if (flags != kRevokeDefault)
        return refuse(Result::invalid_argument, "ncclCommRevoke : unknown flags {:#x}", flags);
    if (one.finalized || one.revoked.exchange(true))
        return refuse(Result::invalid_argument,
                      "ncclCommRevoke : the communicator has been finalized or revoked");
    one.cancelled = true;
    const auto left = leave(library, one, Leave::abort);
    if (const auto bad = await_background(one); bad != Result::success)
        return bad;
    one.cancelled = false;
    one.finalized = true;
    one.state = left;
    return left;
}

Result async_error(Library &library, CommunicatorHandle handle, Result *out) {
    const auto communicator = known(library, handle, "ncclGetAsyncError");
    if (!communicator)
        return communicator.error();
    if (const auto bad = given(out, "ncclGetAsyncError", "asyncError"); bad != Result::success)
        return bad;
    auto &one = **communicator;
    if (one.state == Result::success && one.joined)
        refresh(library, one);
    *out = one.state;
    return Result::success;
}

Result count(Library &library, CommunicatorHandle handle, int *out) {
    return answer(library, handle, "CommCount", "count", out,
                  [](const Communicator &one) { return static_cast<int>(one.size); });
}

Result device(Library &library, CommunicatorHandle handle, int *out) {
    return answer(library, handle, "CommCuDevice", "devid", out,
                  [](const Communicator &one) { return one.place.device; });
}

Result rank(Library &library, CommunicatorHandle handle, int *out) {
    return answer(library, handle, "CommUserRank", "rank", out,
                  [](const Communicator &one) { return static_cast<int>(one.rank); });
}

} // namespace singularity::nccl
