// SPDX-License-Identifier: GPL-2.0-or-later
#include "user_process.hpp"

#include <cerrno>
#include <vector>

#include <fmt/format.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::node {

Expected<void> leave_session_keyring() {
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) < 0 && errno != ENOSYS)
        return std::unexpected(errno_error("make", "a session keyring"));
    return {};
}

Expected<void> become_user(const Spec &spec) {
    if (auto left = leave_session_keyring(); !left)
        return left;
    const std::vector<gid_t> groups(spec.groups.begin(), spec.groups.end());
    if (setgroups(groups.size(), groups.data()) != 0 || setresgid(spec.gid, spec.gid, spec.gid) != 0 ||
        setresuid(spec.uid, spec.uid, spec.uid) != 0)
        return std::unexpected(errno_error("become", fmt::format("user {}, group {}", spec.uid, spec.gid)));
    // All processes of the node must have one uid; and a program that trusts its surroundings because it was
    // given more rights than its caller must not meet surroundings that the caller has chosen.
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return std::unexpected(errno_error("give up", "new privileges"));
    return {};
}

} // namespace singularity::node
