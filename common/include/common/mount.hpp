// SPDX-License-Identifier: GPL-2.0-or-later
// A mount that ends with its owner.
#pragma once

#include "common/error.hpp"

#include <filesystem>
#include <string>
#include <utility>

namespace singularity {

// What mount(2) takes.
struct MountRequest {
    std::string source;
    std::filesystem::path target;
    std::string type; // empty for bind, remount and propagation changes
    unsigned long flags = 0;
    std::string options; // the file system's own, "size=1m"
};

// Invariant: the target has been mounted on and nobody else unmounts it, or the target is empty.
// Must end in the mount namespace in which it was made.
class Mount {
  public:
    [[nodiscard]] static Expected<Mount> make(const MountRequest &request);

    Mount(Mount &&other) noexcept : target_(std::exchange(other.target_, {})) {}
    Mount &operator=(Mount &&other) noexcept;
    Mount(const Mount &) = delete;
    Mount &operator=(const Mount &) = delete;
    ~Mount();

    [[nodiscard]] const std::filesystem::path &target() const noexcept { return target_; }

    // Leaves the mount in place.
    void release() noexcept { target_.clear(); }

    // Lazily (MNT_DETACH): a process that still has a file open there must not keep a job's mounts alive.
    [[nodiscard]] Expected<void> unmount();

  private:
    explicit Mount(std::filesystem::path target) noexcept : target_(std::move(target)) {}

    std::filesystem::path target_;
};

} // namespace singularity
