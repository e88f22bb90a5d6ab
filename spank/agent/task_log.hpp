// SPDX-License-Identifier: GPL-2.0-or-later
// The output of a detached task, from its pipe into a file. Two files of limited size: the newest output is
// never lost.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstdint>
#include <filesystem>

namespace singularity::agent {

class TaskLog {
  public:
    static constexpr std::uint64_t kFileLimit = std::uint64_t{4} << 20; // state directories lie in memory

    // Appends to what is there. The pipe becomes the log's.
    [[nodiscard]] static Expected<TaskLog> open(std::filesystem::path path, UniqueFd pipe);
    [[nodiscard]] static std::filesystem::path older(const std::filesystem::path &path) {
        return path.native() + ".old";
    }

    // -1 when everybody who could write has ended.
    [[nodiscard]] int fd() const { return pipe_.get(); }
    // Takes what the pipe holds now, a bounded part of it if there is much.
    [[nodiscard]] Expected<void> drain();

  private:
    TaskLog(std::filesystem::path path, UniqueFd file, std::uint64_t size, UniqueFd pipe)
        : path_(std::move(path)), file_(std::move(file)), size_(size), pipe_(std::move(pipe)) {}

    std::filesystem::path path_;
    UniqueFd file_;
    std::uint64_t size_ = 0;
    UniqueFd pipe_;
};

} // namespace singularity::agent
