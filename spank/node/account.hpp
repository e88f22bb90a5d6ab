// SPDX-License-Identifier: GPL-2.0-or-later
// The user's account for an image, which does not know it.
#pragma once

#include "record.hpp"

namespace singularity::node {

// As this host's name services have it, lines of passwd(5) and group(5). What they do not know is left out.
void add_account(Image &image);

} // namespace singularity::node
