// SPDX-License-Identifier: GPL-2.0-or-later
// The upper of the two layers of a node's root that is an image: mount points and a few files, all root's, in
// a small file system of its own that nobody else sees.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <filesystem>
#include <string_view>
#include <utility>

namespace singularity::node {

class Skeleton {
  public:
    // An empty one. It is mounted at that place as long as this lives, because the kernel makes overlays only
    // of what is mounted: the calling process must have a mount namespace whose mounts appear nowhere else.
    [[nodiscard]] static Expected<Skeleton> make(const std::filesystem::path &place);
    Skeleton(Skeleton &&other) noexcept
        : place_(std::exchange(other.place_, {})), top_(std::move(other.top_)), uid_(other.uid_),
          gid_(other.gid_) {}
    Skeleton(const Skeleton &) = delete;
    Skeleton &operator=(const Skeleton &) = delete;
    Skeleton &operator=(Skeleton &&) = delete;
    ~Skeleton();

    // It, and what is added to it from now on: for a root to which its user writes.
    [[nodiscard]] Expected<void> give_to(uid_t uid, gid_t gid);

    // With all directories above. Paths are absolute, and have no "." and "..".
    [[nodiscard]] Expected<void> add_directory(std::string_view path) const;
    [[nodiscard]] Expected<void> add_file(std::string_view path, std::string_view content) const;

    [[nodiscard]] int fd() const { return top_.get(); }

  private:
    Skeleton(std::filesystem::path place, UniqueFd top) : place_(std::move(place)), top_(std::move(top)) {}
    [[nodiscard]] Expected<UniqueFd> directory(std::string_view path) const;

    std::filesystem::path place_;
    UniqueFd top_;
    uid_t uid_ = 0;
    gid_t gid_ = 0;
};

} // namespace singularity::node
