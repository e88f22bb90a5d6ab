// SPDX-License-Identifier: GPL-2.0-or-later
#include "user_ids.hpp"

#include <vector>

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::host {
namespace {

// System calls only: the C library's functions would change the ids of all threads.
Expected<void> set_effective_uid(uid_t uid) {
    constexpr auto kSame = static_cast<uid_t>(-1);
    if (syscall(SYS_setresuid, kSame, uid, kSame) != 0)
        return std::unexpected(errno_error("become", fmt::format("user {}", uid)));
    return {};
}

} // namespace

Expected<UserIds> UserIds::take(const Context &context, const std::string &root) {
    if (unshare(CLONE_FS) != 0)
        return std::unexpected(errno_error("prepare", "a thread to act as the user"));
    umask(0);
    if (!root.empty() && (chroot(root.c_str()) != 0 || chdir("/") != 0))
        return std::unexpected(errno_error("look into", root));
    std::vector<gid_t> groups = context.groups;
    if (syscall(SYS_setgroups, groups.size(), groups.data()) != 0 ||
        syscall(SYS_setresgid, context.gid, context.gid, context.gid) != 0)
        return std::unexpected(errno_error("become", fmt::format("group {}", context.gid)));
    return UserIds(context.uid);
}

Expected<void> UserIds::become_user() const { return set_effective_uid(uid_); }
Expected<void> UserIds::become_root() { return set_effective_uid(0); }

} // namespace singularity::host
