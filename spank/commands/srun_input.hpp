// SPDX-License-Identifier: GPL-2.0-or-later
// Where an srun takes the input of its tasks from (srun(1), --input). Nothing but the C and C++ libraries.
#pragma once

#include "command.hpp"

#include <cstdint>

namespace singularity::commands {

enum class InputSource : std::uint8_t {
    standard, // srun's own standard input, for all tasks or one
    nothing,
    named, // a file, which srun opens or, for each task, slurmstepd
};

// Where it is not sure which words are srun's and which its program's: named.
[[nodiscard]] InputSource input_source(const Command &command);

} // namespace singularity::commands
