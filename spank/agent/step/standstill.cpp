// SPDX-License-Identifier: GPL-2.0-or-later
#include "standstill.hpp"

#include "agent/log.hpp"

#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

void Standstill::watch(const Responder &responder, std::function<bool()> left) {
    watcher_ = responder;
    left_ = std::move(left);
    settle();
}

void Standstill::tell(const std::string &step, const StandsStill &what, std::function<void()> then) {
    settle(); // of one that was given up
    const auto watcher = std::exchange(watcher_, std::nullopt);
    if (!watcher || left_())
        return then();
    step_ = step;
    then_ = std::move(then);
    until_ = Deadline::after(patience_);
    watcher->tell(what);
}

void Standstill::look() {
    if (!until_ || (!until_->expired() && !left_()))
        return;
    const auto what =
        fmt::format("the wrapper of {} to see how much of its output there is in a checkpoint", step_);
    if (until_->expired())
        kLog.warning("{}", timeout_error(*until_, what).message());
    else
        kLog.warning("cannot wait for {}: it has left", what);
    settle();
}

void Standstill::settle() {
    until_.reset();
    if (const auto then = std::exchange(then_, {}))
        then();
}

} // namespace singularity::agent
