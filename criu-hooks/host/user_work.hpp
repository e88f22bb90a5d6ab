// SPDX-License-Identifier: GPL-2.0-or-later
// Work in a user's file systems, which may take for ever: a server that does not answer, a FUSE daemon that
// the user has stopped. It has a thread of its own, which is left behind where it does not end in time.
#pragma once

#include "common/error.hpp"

#include <chrono>
#include <functional>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

namespace singularity::host {

template <class T>
class UserWork {
  public:
    UserWork() = default;

    // `work` owns all that it needs: it may outlive its caller.
    [[nodiscard]] static Expected<UserWork> begin(std::function<Expected<T>()> work) {
        std::packaged_task<Expected<T>()> task(std::move(work));
        UserWork out;
        out.result_ = task.get_future();
        try {
            std::thread(std::move(task)).detach();
        } catch (const std::system_error &error) {
            return failure("start", "a thread for the user's files", error.what(), error.code().value());
        }
        return out;
    }

    // Not waited for yet.
    [[nodiscard]] bool pending() const { return result_.valid(); }

    // go_on is asked several times a second; its error ends the wait.
    [[nodiscard]] Expected<T> wait(const std::function<Expected<void>()> &go_on) {
        constexpr std::chrono::milliseconds kPause{100};
        while (result_.wait_for(kPause) != std::future_status::ready)
            if (auto wanted = go_on(); !wanted)
                return propagate(wanted);
        return result_.get();
    }

  private:
    std::future<Expected<T>> result_;
};

} // namespace singularity::host
