// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/barrier/gate.hpp"

#include <unistd.h>

namespace singularity::barrier {

void Gate::join(const Member &member) {
    const std::scoped_lock lock(lock_);
    state_.join(member);
}

void Gate::leave(const Member &member) {
    {
        const std::scoped_lock lock(lock_);
        state_.leave(member);
    }
    changed_.notify_all();
}

void Gate::enter(std::span<const Line> group) {
    std::unique_lock lock(lock_);
    ++waiting_;
    changed_.wait(lock, [this] { return state_.may_pass(); });
    --waiting_;
    ++passing_;
    state_.pass(group);
}

void Gate::exit() {
    bool asked = false;
    {
        const std::scoped_lock lock(lock_);
        --passing_;
        asked = state_.closed();
    }
    if (asked)
        changed_.notify_all();
}

Report Gate::serve(const Request &request, const Deadline &deadline) {
    std::unique_lock lock(lock_);
    state_.apply(request, held());
    changed_.notify_all();
    // Another request, or open(), may come meanwhile from a daemon that knows more.
    if (request.action == Request::Action::hold)
        changed_.wait_until(lock, deadline.when(), [&] {
            return state_.settled(passing_) || !state_.closed() || state_.round() != request.round ||
                   state_.barrier() != request.barrier;
        });
    auto report = state_.report(held(), passing_);
    report.process = process_;
    report.pid = getpid();
    report.doing = doing();
    return report;
}

void Gate::open() {
    {
        const std::scoped_lock lock(lock_);
        state_.open();
    }
    changed_.notify_all();
}

std::string Gate::doing() const {
    if (passing_ > 0)
        return "issues a group, or waits in one for the others";
    return held() ? "stands at its gate" : "is outside of NCCL";
}

} // namespace singularity::barrier
