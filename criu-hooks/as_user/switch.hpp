// SPDX-License-Identifier: GPL-2.0-or-later
// Whose node criu restores, and the change of ids that goes with it.
#pragma once

#include <sys/types.h>

namespace singularity::as_user {

struct Node {
    bool restored = false; // as kVariable says; both false in everything that was not started with it
    bool dumped = false;
    uid_t uid = 0;
    gid_t gid = 0;
    dev_t device = 0; // of the directory that is its root
    ino_t inode = 0;
};
[[nodiscard]] const Node &node();

// Of a dump: whether root's rights to files are added to the user's ids.
enum class Rights : bool { kUsers, kRootsToo };

// The calling thread has the user's ids for files while this lives: in a restore with none of root's rights
// to files, in a dump beside them. Its saved ids stay root's: the user cannot trace it. errno is kept.
class Switch {
  public:
    explicit Switch(Rights rights = Rights::kRootsToo);
    ~Switch();
    Switch(const Switch &) = delete;
    Switch &operator=(const Switch &) = delete;
    Switch(Switch &&) = delete;
    Switch &operator=(Switch &&) = delete;

  private:
    uid_t uid_;
    gid_t gid_;
};

// In a restore: who the calling thread is for the other end of a Unix socket (SO_PEERCRED), which the kernel
// keeps with the socket. Its real and saved ids stay root's. errno is kept.
class PeerIds {
  public:
    PeerIds();
    ~PeerIds();
    PeerIds(const PeerIds &) = delete;
    PeerIds &operator=(const PeerIds &) = delete;
    PeerIds(PeerIds &&) = delete;
    PeerIds &operator=(PeerIds &&) = delete;

  private:
    uid_t uid_;
    gid_t gid_;
};

} // namespace singularity::as_user
