// SPDX-License-Identifier: GPL-2.0-or-later
// What blocks, such as munge and the resolver of names, in a process of its own: the caller's loop goes on.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace singularity::peers {

// For programs of one thread, which reap their children themselves: a copy of the process does the work, and
// dies with the object.
class Subprocess {
  public:
    // work: runs in the other process; what it returns is at most kLimit bytes long. name: for messages.
    [[nodiscard]] static Expected<Subprocess> start(std::string name, std::function<std::string()> work,
                                                    const Deadline &deadline);
    Subprocess(Subprocess &&) noexcept = default;
    Subprocess &operator=(Subprocess &&other) noexcept;
    Subprocess(const Subprocess &) = delete;
    Subprocess &operator=(const Subprocess &) = delete;
    ~Subprocess();

    static constexpr std::size_t kLimit = std::size_t{64} << 10;

    [[nodiscard]] int fd() const { return pipe_.get(); }
    [[nodiscard]] const Deadline &deadline() const { return deadline_; }
    // Nothing: it is still at work.
    [[nodiscard]] Expected<std::optional<std::string>> take();

  private:
    Subprocess(std::string name, UniqueFd pipe, UniqueFd pidfd, const Deadline &deadline)
        : name_(std::move(name)), pipe_(std::move(pipe)), pidfd_(std::move(pidfd)), deadline_(deadline) {}
    void end();

    std::string name_;
    UniqueFd pipe_;
    UniqueFd pidfd_;
    Deadline deadline_;
    std::string found_;
};

} // namespace singularity::peers
