// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/name_space.hpp"

#include "common/log.hpp"

#include <algorithm>
#include <exception>
#include <iterator>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

namespace singularity {
namespace {

constexpr log::Channel kNamespaceLog("namespace");

struct KindRow {
    NameSpaceKind kind;
    int flag;            // for setns(2)
    const char *file;    // in /proc/PID/ns
    const char *current; // the file that setns changes for the calling thread
};
constexpr KindRow kKinds[] = {
    {NameSpaceKind::kMount, CLONE_NEWNS, "mnt", "mnt"},
    {NameSpaceKind::kNetwork, CLONE_NEWNET, "net", "net"},
    {NameSpaceKind::kUts, CLONE_NEWUTS, "uts", "uts"},
    {NameSpaceKind::kIpc, CLONE_NEWIPC, "ipc", "ipc"},
    {NameSpaceKind::kPid, CLONE_NEWPID, "pid", "pid_for_children"},
    {NameSpaceKind::kCgroup, CLONE_NEWCGROUP, "cgroup", "cgroup"},
};

const KindRow &row(NameSpaceKind kind) {
    const auto *const found = std::ranges::find(kKinds, kind, &KindRow::kind);
    return found != std::end(kKinds) ? *found : kKinds[0];
}

} // namespace

const char *proc_name(NameSpaceKind kind) { return row(kind).file; }

Expected<NameSpace> NameSpace::of_process(int pidfd, NameSpaceKind kind, std::string name) {
    UniqueFd fd(::fcntl(pidfd, F_DUPFD_CLOEXEC, 0));
    if (!fd)
        return std::unexpected(errno_error("keep the pidfd of", name));
    return NameSpace(std::move(fd), kind, fmt::format("{} namespace of {}", proc_name(kind), name));
}

Expected<NameSpace> NameSpace::open(const std::filesystem::path &path, NameSpaceKind kind) {
    auto fd = open_file(path, O_RDONLY);
    if (!fd)
        return propagate(fd);
    return NameSpace(std::move(*fd), kind, path.native());
}

Expected<NameSpace> NameSpace::current(NameSpaceKind kind) {
    return open(fmt::format("/proc/thread-self/ns/{}", row(kind).current), kind);
}

Expected<void> NameSpace::enter() const {
    if (::setns(fd_.get(), row(kind_).flag) != 0)
        return std::unexpected(errno_error("enter", name_));
    return {};
}

NameSpaceVisit::NameSpaceVisit(Home home) : home_(std::make_unique<Home>(std::move(home))) {}

Expected<NameSpaceVisit> NameSpaceVisit::to(const NameSpace &there) {
    auto here = NameSpace::current(there.kind());
    if (!here)
        return propagate(here);
    UniqueFd root;
    UniqueFd working_directory;
    if (there.kind() == NameSpaceKind::kMount) {
        // setns refuses to move a thread that shares root and working directory with others.
        if (::unshare(CLONE_FS) != 0)
            return std::unexpected(errno_error("unshare", "the root directory of the thread"));
        for (auto [fd, path] : {std::pair(&root, "/"), std::pair(&working_directory, ".")}) {
            auto opened = open_file(path, O_PATH | O_DIRECTORY);
            if (!opened)
                return propagate(opened);
            *fd = std::move(*opened);
        }
    }
    // Everything that can fail for want of memory comes before the move.
    NameSpaceVisit visit(Home{std::move(*here), std::move(root), std::move(working_directory)});
    if (auto entered = there.enter(); !entered) {
        visit.home_.reset();
        return propagate(entered);
    }
    return visit;
}

Expected<void> NameSpaceVisit::return_home() const {
    if (auto entered = home_->name_space.enter(); !entered)
        return entered;
    if (!home_->root)
        return {};
    if (::fchdir(home_->root.get()) != 0 || ::chroot(".") != 0)
        return std::unexpected(errno_error("return to", "the root directory of the thread"));
    if (::fchdir(home_->working_directory.get()) != 0)
        return std::unexpected(errno_error("return to", "the working directory of the thread"));
    return {};
}

NameSpaceVisit::~NameSpaceVisit() {
    if (home_ == nullptr)
        return;
    if (const auto returned = return_home(); !returned) {
        kNamespaceLog.error("{}; the process ends", returned.error().message());
        std::terminate();
    }
}

} // namespace singularity
