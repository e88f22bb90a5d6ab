// SPDX-License-Identifier: GPL-2.0-or-later
// What a child of root's does before it runs a program of a user's.
#pragma once

#include "common/error.hpp"
#include "record.hpp"

namespace singularity::node {

// A session keyring of its own, for itself and what it starts: who has the agent's reads, changes and removes
// the keys that root's processes use, whatever their ids are (session-keyring(7)).
[[nodiscard]] Expected<void> leave_session_keyring();

// For good: ids and groups of the node's user, no new privileges, a session keyring of its own.
[[nodiscard]] Expected<void> become_user(const Spec &spec);

} // namespace singularity::node
