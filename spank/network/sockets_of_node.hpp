// SPDX-License-Identifier: GPL-2.0-or-later
// Which sockets the processes of a node have, where several nodes have one network namespace.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <set>

namespace singularity::network {

// By inode. init: a pidfd of its first process; ESRCH: it has ended.
using Sockets = std::set<std::uint32_t>;
[[nodiscard]] Expected<Sockets> sockets_of_node(int init);

} // namespace singularity::network
