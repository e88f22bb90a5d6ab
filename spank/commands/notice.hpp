// SPDX-License-Identifier: GPL-2.0-or-later
// How an srun that may go on after a checkpoint tells the runner that it has begun its step: the SPANK plugin
// in it writes a byte.
#pragma once

namespace singularity::commands {

inline constexpr int kNotice = 3; // the descriptor

} // namespace singularity::commands
