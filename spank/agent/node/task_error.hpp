// SPDX-License-Identifier: GPL-2.0-or-later
// Tasks and init's errors in words.
#pragma once

#include "common/error.hpp"
#include "node/init_messages.hpp"

#include <cstdint>
#include <string>

namespace singularity::agent {

// on: the task, the program or the directory that the request was about.
[[nodiscard]] Error task_error(const node::InitFailed &failed, const std::string &on);

// Of a program that was to start, or the directory for it. image: empty: the host's root.
[[nodiscard]] Error task_error(const node::InitFailed &failed, const std::string &name,
                               const std::string &image);

[[nodiscard]] std::string task_name(const std::string &node, std::uint32_t task);
// Init is the user's and may say anything.
[[nodiscard]] Error unexpected_reply(const std::string &node);

} // namespace singularity::agent
