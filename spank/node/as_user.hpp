// SPDX-License-Identifier: GPL-2.0-or-later
// Finding files by names that a user has chosen, with no more rights than the user has.
#pragma once

#include "common/error.hpp"
#include "record.hpp"

#include <utility>
#include <vector>

#include <sys/types.h>

namespace singularity::node {

// The calling thread's file system ids (setfsuid(2)) and groups are those of a node's user as long as this
// lives; everything else of it stays root's, so the user can neither signal nor trace it.
class AsUser {
  public:
    [[nodiscard]] static Expected<AsUser> begin(const Spec &spec);
    AsUser(AsUser &&other) noexcept
        : groups_(std::move(other.groups_)), active_(std::exchange(other.active_, false)) {}
    AsUser(const AsUser &) = delete;
    AsUser &operator=(const AsUser &) = delete;
    AsUser &operator=(AsUser &&) = delete;
    ~AsUser();

  private:
    explicit AsUser(std::vector<gid_t> groups) : groups_(std::move(groups)) {}

    std::vector<gid_t> groups_; // the thread's own
    bool active_ = true;
};

} // namespace singularity::node
