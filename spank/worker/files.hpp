// SPDX-License-Identifier: GPL-2.0-or-later
// Files that a node has open for writing: what the administrator wants, and what its user is told.
#pragma once

#include "agent/protocol/agent_messages.hpp"
#include "common/config.hpp"
#include "common/error.hpp"
#include "node/record.hpp"

#include <string>

namespace singularity::worker {

[[nodiscard]] Expected<Config::Files> file_settings();

// Who a node's writing is attributed to: its job, of which it may be one node of many.
[[nodiscard]] std::string owner_of(const node::Spec &spec);

// One more line for the user. A report has room for 32 of 1 KiB.
void add_notice(agent::ImageReport &report, std::string text);

} // namespace singularity::worker
