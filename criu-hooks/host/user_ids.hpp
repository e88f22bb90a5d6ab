// SPDX-License-Identifier: GPL-2.0-or-later
// The ids of the job's user for a thread that opens, makes or changes files on the user's behalf: by name,
// with no more rights than the user has.
#pragma once

#include "criu-hooks/host/node.hpp"

#include <string>

namespace singularity::host {

// The calling thread has the user's groups and can become the user and root in turns. Its real user id stays
// root's, so the user can neither signal nor trace it. The ids of other threads do not change. The thread
// must be one of its own that ends soon: its groups, umask and root directory are never put back.
class UserIds {
  public:
    // root: the thread's root directory from now on; empty: as it is.
    [[nodiscard]] static Expected<UserIds> take(const Context &context, const std::string &root = {});

    [[nodiscard]] Expected<void> become_user() const;
    [[nodiscard]] static Expected<void> become_root();

  private:
    explicit UserIds(uid_t uid) : uid_(uid) {}

    uid_t uid_;
};

} // namespace singularity::host
