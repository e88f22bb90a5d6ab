// SPDX-License-Identifier: GPL-2.0-or-later
// A thread that does one thing again and again and can be stopped within a bounded time whatever it is doing.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace singularity {

class Background {
  public:
    // Does one step; the time until the next one, or nothing: the thread ends. Must not throw.
    using Step = std::function<std::optional<std::chrono::milliseconds>()>;

    Background() = default;
    ~Background() = default; // leaves a running thread alone: see stop()
    Background(const Background &) = delete;
    Background &operator=(const Background &) = delete;

    // The first step is done after `delay`. The step and what it captures belong to the thread from now on.
    // All signals are blocked in the thread: they are for the host program.
    [[nodiscard]] Expected<void> start(const char *name, std::chrono::milliseconds delay, Step step);

    // Wakes the thread and waits for its end. After the deadline it is left to itself: the step that it is in
    // may finish later, no other will begin. The code must then stay loaded (link with -z nodelete). Harmless
    // in a fork's child.
    void stop(const Deadline &deadline) noexcept;

    [[nodiscard]] bool started() const noexcept { return state_ != nullptr; }

  private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace singularity
