// SPDX-License-Identifier: GPL-2.0-or-later
// Which stores there are. Tasks and other hosts say which one a job has: this host's singularity.yaml
// decides.
#pragma once

#include "common/error.hpp"

#include <string>
#include <string_view>

namespace singularity::agent {

// As singularity.yaml writes it, or why there is none of that directory; empty: that of who has not chosen,
// for which no file is read.
[[nodiscard]] Expected<std::string> store_here(std::string_view directory);

} // namespace singularity::agent
