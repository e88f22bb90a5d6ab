// SPDX-License-Identifier: GPL-2.0-or-later
// What a virtual node sees of the file system.
#pragma once

#include "common/error.hpp"
#include "image_server.hpp"
#include "record.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace singularity::node {

// Gives the calling process a mount namespace with the node's mounts and puts it at its root. For a process
// that is the first of the node's PID namespace, with the host's /proc still mounted; not to be called by
// anybody who wants to go back. server: of a node with an image.
[[nodiscard]] Expected<void> enter_own_mounts(const Room &room, const Spec &spec, const ImageServer *server);

// The mount points of a mountinfo (proc(5)) that a node does not have, because they belong to one machine
// only: another one, to which the node may move, has not the same.
[[nodiscard]] std::vector<std::string> pruned_mounts(std::string_view mountinfo);

} // namespace singularity::node
