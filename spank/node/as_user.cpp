// SPDX-License-Identifier: GPL-2.0-or-later
#include "as_user.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::node {

namespace {

// System calls only: the C library's setgroups would change the groups of all threads. setfsuid(2) says
// nothing of a failure; it returns what was there before.
bool set_ids(uid_t uid, gid_t gid, const std::vector<gid_t> &groups) {
    constexpr long kAsk = -1;
    if (syscall(SYS_setgroups, groups.size(), groups.data()) != 0)
        return false;
    syscall(SYS_setfsgid, gid);
    syscall(SYS_setfsuid, uid);
    return syscall(SYS_setfsgid, kAsk) == static_cast<long>(gid) &&
           syscall(SYS_setfsuid, kAsk) == static_cast<long>(uid);
}

// The kernel forgets the signal that comes with the parent's end when ids change.
class DeathSignal {
  public:
    DeathSignal() { prctl(PR_GET_PDEATHSIG, &number_); }
    DeathSignal(const DeathSignal &) = delete;
    DeathSignal &operator=(const DeathSignal &) = delete;
    DeathSignal(DeathSignal &&) = delete;
    DeathSignal &operator=(DeathSignal &&) = delete;
    ~DeathSignal() { prctl(PR_SET_PDEATHSIG, number_); }

  private:
    int number_ = 0;
};

} // namespace

Expected<AsUser> AsUser::begin(const Spec &spec) {
    std::vector<gid_t> own(static_cast<std::size_t>(std::max(getgroups(0, nullptr), 0)));
    if (getgroups(static_cast<int>(own.size()), own.data()) < 0)
        return std::unexpected(errno_error("read", "the groups of this process"));
    AsUser out(std::move(own));
    const DeathSignal signal;
    if (!set_ids(spec.uid, spec.gid, {spec.groups.begin(), spec.groups.end()}))
        return failure("look for files as", fmt::format("user {}", spec.uid), "the kernel refuses", EPERM);
    return out;
}

AsUser::~AsUser() {
    const DeathSignal signal;
    // Root may always become itself again. A thread that could not would go on with the wrong rights.
    if (active_ && !set_ids(0, 0, groups_))
        std::abort();
}

} // namespace singularity::node
