// SPDX-License-Identifier: GPL-2.0-or-later
// What an image may say: CRIU does as root whatever it finds there.
#pragma once

#include "criu-hooks/host/node.hpp"

namespace singularity::host {

// Every thread in the image has the ids and groups of the job's user, and no capability; nothing else in it
// gives more. An error names the image file and what it says.
[[nodiscard]] Expected<void> verify_credentials(const Context &context, int images);

} // namespace singularity::host
