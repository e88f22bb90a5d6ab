// SPDX-License-Identifier: GPL-2.0-or-later
// Which checkpoints damaged chunks belong to, and which to use instead.
#pragma once

#include "common/error.hpp"
#include "criu-hooks/store/hash.hpp"
#include "criu-hooks/store/verify_report.hpp"
#include "state.hpp"

#include <set>
#include <string>
#include <vector>

namespace singularity::store {

// Of all of the user's checkpoints whose manifests can be read, or of the one with this id, those of which
// one of these chunks cannot be read. Reads the chunks again: damage to a file that readers pass over does no
// harm.
[[nodiscard]] Expected<std::vector<Affected>> affected_by(UserSpace &space, const std::set<Hash> &damaged,
                                                          const std::string &only = {});

} // namespace singularity::store
