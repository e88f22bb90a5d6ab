// SPDX-License-Identifier: GPL-2.0-or-later
#include "background.hpp"

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>
#include <unistd.h>

namespace singularity {

// Shared by the thread and its owner: whichever lives longer frees it.
struct Background::State {
    explicit State(Step step_to_do) : step(std::move(step_to_do)) {}

    std::mutex mutex;
    std::condition_variable changed;
    bool stopping = false;
    bool ended = false;
    Step step;
    pid_t process = getpid();

    void run(std::chrono::milliseconds delay) {
        std::optional<std::chrono::milliseconds> next = delay;
        std::unique_lock lock(mutex);
        while (next) {
            if (changed.wait_for(lock, *next, [this] { return stopping; }))
                break;
            lock.unlock();
            next = step();
            lock.lock();
        }
        step = nullptr;
        ended = true;
        changed.notify_all();
    }
};

namespace {

class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked &) = delete;
    SignalsBlocked &operator=(const SignalsBlocked &) = delete;

  private:
    sigset_t before_{};
};

} // namespace

Expected<void> Background::start(const char *name, std::chrono::milliseconds delay, Step step) {
    auto state = std::make_shared<State>(std::move(step));
    try {
        const SignalsBlocked blocked;
        std::thread thread([state, delay] { state->run(delay); });
        pthread_setname_np(thread.native_handle(), name);
        thread.detach();
    } catch (const std::system_error &error) {
        return std::unexpected(errno_error("start the thread", name, error.code().value()));
    }
    state_ = std::move(state);
    return {};
}

void Background::stop(const Deadline &deadline) noexcept {
    const auto state = std::exchange(state_, nullptr);
    // A fork's child has the memory but not the thread, and perhaps its locks.
    if (state == nullptr || state->process != getpid())
        return;
    std::unique_lock lock(state->mutex);
    state->stopping = true;
    state->changed.notify_all();
    state->changed.wait_until(lock, deadline.when(), [&state] { return state->ended; });
}

} // namespace singularity
