// SPDX-License-Identifier: GPL-2.0-or-later
// A process that this one has started, by descriptor: a pidfd never means another process.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace singularity::launcher {

struct Command {
    std::vector<std::string> arguments;                           // [0]: the program, looked up in PATH
    std::vector<std::pair<std::string, std::string>> environment; // set in addition to this process's
    std::vector<int> keep_open;                                   // descriptors that the program inherits
};

class Child {
  public:
    // The program runs, or the error says why not. It gets SIGKILL when this process dies.
    [[nodiscard]] static Expected<Child> start(const Command &command);

    Child(Child &&) = default;
    Child &operator=(Child &&) = default;
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;
    // Ends it by SIGKILL if it still runs.
    ~Child();

    [[nodiscard]] int pidfd() const { return pidfd_.get(); } // readable when it has ended
    void signal(int number) const;
    // Waits for its end. Exit status, 128 + N after signal N.
    [[nodiscard]] Expected<int> wait(const Deadline &deadline);
    [[nodiscard]] Expected<int> reap();

  private:
    explicit Child(UniqueFd pidfd) : pidfd_(std::move(pidfd)) {}

    UniqueFd pidfd_;
    std::optional<int> status_;
};

} // namespace singularity::launcher
