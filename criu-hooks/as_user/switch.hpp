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

// The calling thread has the user's ids for files while this lives: in a restore with none of root's rights
// to files, in a dump beside them. Its saved ids stay root's: the user cannot trace it. errno is kept.
class Switch {
  public:
    Switch();
    ~Switch();
    Switch(const Switch &) = delete;
    Switch &operator=(const Switch &) = delete;
    Switch(Switch &&) = delete;
    Switch &operator=(Switch &&) = delete;

  private:
    uid_t uid_;
    gid_t gid_;
};

} // namespace singularity::as_user
