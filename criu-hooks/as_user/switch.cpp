// SPDX-License-Identifier: GPL-2.0-or-later
#include "switch.hpp"

#include "cgroups.hpp"
#include "criu-hooks/host/as_user.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::as_user {
namespace {

Node the_node;

// Before main().
[[gnu::constructor]] void begin() {
    const char *const text = std::getenv(kVariable);
    constexpr int kFields = 7;
    Node node;
    char work = 0;
    int said = -1;
    int table = -1;
    if (text == nullptr || std::sscanf(text, "%c:%u:%u:%lu:%lu:%d:%d", &work, &node.uid, &node.gid,
                                       &node.device, &node.inode, &said, &table) != kFields)
        return;
    node.restored = work == kRestore;
    node.dumped = work == kDump;
    // What criu starts, such as tar, is left as it is.
    unsetenv(kVariable);
    unsetenv("LD_PRELOAD");
    the_node = node;
    if (!read_table(table))
        _exit(EXIT_FAILURE);
    // Whoever started criu waits for it: a library that was not found is only a warning to the loader.
    const char yes = kLoaded;
    if (write(said, &yes, 1) != 1)
        _exit(EXIT_FAILURE);
    close(said);
    // Such ids at the start of a program would have kept the loader from loading this.
    if (node.dumped &&
        (syscall(SYS_setresgid, node.gid, 0, 0) != 0 || syscall(SYS_setresuid, node.uid, 0, 0) != 0))
        _exit(EXIT_FAILURE);
}

// These calls never say that they have failed; an id that nobody has changes nothing.
void be_sure(uid_t uid, gid_t gid) {
    if (static_cast<uid_t>(syscall(SYS_setfsuid, -1)) != uid ||
        static_cast<gid_t>(syscall(SYS_setfsgid, -1)) != gid)
        _exit(EXIT_FAILURE);
}

// Those that root may have. Where that fails the user's own are what there is.
void take_all_rights() {
    __user_cap_header_struct head{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> rights{};
    if (syscall(SYS_capget, &head, rights.data()) != 0)
        return;
    for (auto &part : rights)
        part.effective = part.permitted;
    syscall(SYS_capset, &head, rights.data());
}

} // namespace

const Node &node() { return the_node; }

// The system calls: the C library's functions are criu's own business. They return what was before, and the
// kernel takes root's rights to files and gives them back with them.
Switch::Switch(Rights rights)
    : uid_(static_cast<uid_t>(syscall(SYS_setfsuid, the_node.uid))),
      gid_(static_cast<gid_t>(syscall(SYS_setfsgid, the_node.gid))) {
    be_sure(the_node.uid, the_node.gid);
    if (the_node.dumped && rights == Rights::kRootsToo)
        take_all_rights();
}

Switch::~Switch() {
    const int why = errno;
    syscall(SYS_setfsgid, gid_);
    syscall(SYS_setfsuid, uid_);
    be_sure(uid_, gid_);
    errno = why;
}

// The effective ids, and back: the kernel gives root's rights back with root's effective id.
PeerIds::PeerIds() : uid_(geteuid()), gid_(getegid()) {
    if (!the_node.restored)
        return;
    if (syscall(SYS_setresgid, -1, the_node.gid, -1) != 0 ||
        syscall(SYS_setresuid, -1, the_node.uid, -1) != 0)
        _exit(EXIT_FAILURE);
}

PeerIds::~PeerIds() {
    if (!the_node.restored)
        return;
    const int why = errno;
    if (syscall(SYS_setresuid, -1, uid_, -1) != 0 || syscall(SYS_setresgid, -1, gid_, -1) != 0)
        _exit(EXIT_FAILURE);
    errno = why;
}

} // namespace singularity::as_user
