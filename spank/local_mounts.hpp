// SPDX-License-Identifier: GPL-2.0-or-later
// A job's local directories outside of its virtual nodes.
#pragma once

#include "common/error.hpp"
#include "local/notice.hpp"
#include "local/tree.hpp"

#include <string>

namespace singularity::spank {

// The calling thread, which is root's, gets a mount namespace of its own with these in their places. It and
// what it starts see them from then on, and nobody else does.
[[nodiscard]] Expected<void> show_local_directories(const local::Notice &settings, const UniqueFd &tree,
                                                    const std::string &name, local::Owner owner);

} // namespace singularity::spank
