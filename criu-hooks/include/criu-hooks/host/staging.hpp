// SPDX-License-Identifier: GPL-2.0-or-later
// Where host images lie between CRIU and the store: directories that only root can reach and that do not
// outlive what they are for.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace singularity::host {

// Invariant: the directory exists, is empty at first, and is locked by this process; or path_ is empty.
// Removed with the object, and the base with the last one. What a killed process has left is unlocked, and
// goes when the next is made in the same place, or with remove_abandoned().
class Staging {
  public:
    // In `base`, which must belong to the effective user and be closed to all others; it is made if it is
    // missing. On a tmpfs images take memory; on a disk they need what the node has in memory as free space.
    [[nodiscard]] static Expected<Staging> make(const std::filesystem::path &base);

    Staging(Staging &&other) noexcept
        : path_(std::exchange(other.path_, {})), directory_(std::move(other.directory_)) {}
    Staging &operator=(Staging &&) = delete;
    Staging(const Staging &) = delete;
    Staging &operator=(const Staging &) = delete;
    ~Staging(); // what cannot be removed is logged

    [[nodiscard]] int directory() const { return directory_.get(); }
    [[nodiscard]] const std::filesystem::path &path() const { return path_; }

    // How many directories of processes that have ended were removed.
    [[nodiscard]] static Expected<std::size_t> remove_abandoned(const std::filesystem::path &base);

  private:
    [[nodiscard]] static Expected<std::optional<Staging>> make_once(const std::filesystem::path &base);
    Staging(std::filesystem::path path, UniqueFd directory)
        : path_(std::move(path)), directory_(std::move(directory)) {}

    std::filesystem::path path_;
    UniqueFd directory_;
};

} // namespace singularity::host
