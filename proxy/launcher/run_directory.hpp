// SPDX-License-Identifier: GPL-2.0-or-later
// The private directory of one run: sockets, logs of the proxies, statistics. Removed at the end; if this
// process is killed, by the next run of the same user.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <filesystem>
#include <utility>

namespace singularity::launcher {

class RunDirectory {
  public:
    // In XDG_RUNTIME_DIR, or /tmp.
    [[nodiscard]] static Expected<RunDirectory> make();
    RunDirectory(RunDirectory &&other) noexcept
        : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
    RunDirectory &operator=(RunDirectory &&) = delete;
    RunDirectory(const RunDirectory &) = delete;
    RunDirectory &operator=(const RunDirectory &) = delete;
    ~RunDirectory();

    [[nodiscard]] const std::filesystem::path &path() const { return path_; }

  private:
    RunDirectory(std::filesystem::path path, UniqueFd lock)
        : path_(std::move(path)), lock_(std::move(lock)) {}

    std::filesystem::path path_; // empty: moved from
    UniqueFd lock_;              // a file in it, locked as long as its run lives
};

} // namespace singularity::launcher
