// SPDX-License-Identifier: GPL-2.0-or-later
// Namespaces of other processes, and short visits to them. (A C++ keyword keeps the file from being
// "namespace".)
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <sys/types.h>

namespace singularity {

// The kinds that a thread can leave again. A user namespace is not among them (setns(2), EPERM and EINVAL).
enum class NameSpaceKind : std::uint8_t { kMount, kNetwork, kUts, kIpc, kPid, kCgroup };

// The name of the kind's file in /proc/PID/ns.
[[nodiscard]] const char *proc_name(NameSpaceKind kind);

// Invariant: holds a descriptor that keeps the namespace (or, for a process, the way to it) alive.
class NameSpace {
  public:
    // The namespace that a process is in, through its pidfd: the process cannot be mistaken for a later one
    // with the same number. `name` is for messages. The descriptor is duplicated. Entering fails with ESRCH
    // once the process has been reaped.
    [[nodiscard]] static Expected<NameSpace> of_process(int pidfd, NameSpaceKind kind, std::string name);

    // A file such as /proc/4711/ns/net or a bind mount of one, as ip-netns(8) makes them.
    [[nodiscard]] static Expected<NameSpace> open(const std::filesystem::path &path, NameSpaceKind kind);

    // Where the calling thread is; for kPid, where its next child will be.
    [[nodiscard]] static Expected<NameSpace> current(NameSpaceKind kind);

    // Moves the calling thread for good; for kPid its children to come. Needs CAP_SYS_ADMIN.
    [[nodiscard]] Expected<void> enter() const;

    [[nodiscard]] NameSpaceKind kind() const noexcept { return kind_; }

  private:
    NameSpace(UniqueFd fd, NameSpaceKind kind, std::string name)
        : fd_(std::move(fd)), kind_(kind), name_(std::move(name)) {}

    UniqueFd fd_;
    NameSpaceKind kind_;
    std::string name_;
};

// A visit: the calling thread is in the namespace until the object ends, which must happen on the same
// thread. For kMount the thread gets its own root and working directory (unshare(2), CLONE_FS), and both are
// again what they were after the visit. If the way back is barred, the process ends (std::terminate): a root
// daemon that goes on in a job's namespace would do everything else it does there as well.
class NameSpaceVisit {
  public:
    [[nodiscard]] static Expected<NameSpaceVisit> to(const NameSpace &there);

    NameSpaceVisit(NameSpaceVisit &&other) noexcept = default;
    NameSpaceVisit &operator=(NameSpaceVisit &&) = delete;
    NameSpaceVisit(const NameSpaceVisit &) = delete;
    NameSpaceVisit &operator=(const NameSpaceVisit &) = delete;
    ~NameSpaceVisit();

  private:
    struct Home {
        NameSpace name_space;
        UniqueFd root;              // only for kMount:
        UniqueFd working_directory; // setns moves both to the root of the namespace
    };
    explicit NameSpaceVisit(Home home);

    [[nodiscard]] Expected<void> return_home() const;

    std::unique_ptr<Home> home_; // empty when moved from
};

} // namespace singularity
