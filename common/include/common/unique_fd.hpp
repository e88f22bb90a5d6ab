// SPDX-License-Identifier: GPL-2.0-or-later
// A file descriptor with one owner.
#pragma once

#include "common/error.hpp"

#include <filesystem>
#include <utility>

namespace singularity {

// Invariant: holds an open descriptor that nobody else closes, or -1.
class UniqueFd {
  public:
    UniqueFd() noexcept = default;
    explicit UniqueFd(int fd) noexcept : fd_(fd) {}
    UniqueFd(UniqueFd &&other) noexcept : fd_(other.release()) {}
    UniqueFd &operator=(UniqueFd &&other) noexcept {
        reset(other.release());
        return *this;
    }
    UniqueFd(const UniqueFd &) = delete;
    UniqueFd &operator=(const UniqueFd &) = delete;
    ~UniqueFd() { reset(); }

    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

    // An error of close(2) is logged. Who wrote data that matters calls close() and looks at the result.
    void reset(int fd = -1) noexcept;
    [[nodiscard]] Expected<void> close();

  private:
    int fd_ = -1;
};

// open(2) with O_CLOEXEC added; mode only matters with O_CREAT.
[[nodiscard]] Expected<UniqueFd> open_file(const std::filesystem::path &path, int flags,
                                           unsigned mode = 0600);

} // namespace singularity
