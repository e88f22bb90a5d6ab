// SPDX-License-Identifier: GPL-2.0-or-later
// Output on its way: a file to which is added at the end, and whose beginning is given back once it has been
// read. What is where never changes, so reader and writer may both die and go on.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "kept_output.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace singularity::agent {

class Spool {
  public:
    // What is there stays. uid: whose output it is.
    [[nodiscard]] static Expected<Spool> open(const std::filesystem::path &path, std::uint32_t uid);

    [[nodiscard]] std::uint64_t begin() const { return begin_; } // what is before has been given back
    [[nodiscard]] std::uint64_t end() const { return end_; }
    // Takes it, whatever the user's share is.
    [[nodiscard]] Expected<void> append(std::string_view text);
    [[nodiscard]] const KeptOutput &kept() const { return kept_; }
    struct Piece {
        std::uint64_t offset = 0; // above the one asked for, if that has been given back
        std::string text;         // empty at the end
    };
    [[nodiscard]] Expected<Piece> read(std::uint64_t offset, std::size_t most) const;
    // What is before the offset is not asked for again; whole blocks of it are given back.
    [[nodiscard]] Expected<void> release(std::uint64_t offset);

  private:
    Spool(UniqueFd file, std::uint64_t begin, std::uint64_t end, std::uint32_t uid)
        : file_(std::move(file)), begin_(begin), end_(end), kept_(uid) {
        kept_.set(end_ - begin_);
    }

    UniqueFd file_;
    std::uint64_t begin_;
    std::uint64_t end_;
    KeptOutput kept_;
};

// Of a rank, in the directory of its job at the coordinator.
[[nodiscard]] inline std::filesystem::path rank_file(const std::filesystem::path &directory,
                                                     std::uint32_t rank) {
    return directory / ("rank." + std::to_string(rank));
}

} // namespace singularity::agent
