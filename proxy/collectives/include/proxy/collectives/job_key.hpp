// SPDX-License-Identifier: GPL-2.0-or-later
// The secret that the processes of one job share. Whoever does not know it is nobody's peer.
#pragma once

#include "common/error.hpp"

#include <array>
#include <cstddef>

namespace singularity::collectives {

using JobKey = std::array<std::byte, 32>;

[[nodiscard]] Expected<JobKey> make_job_key();
// All of a descriptor: exactly the key's bytes.
[[nodiscard]] Expected<JobKey> read_job_key(int descriptor);

} // namespace singularity::collectives
