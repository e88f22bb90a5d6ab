// SPDX-License-Identifier: GPL-2.0-or-later
// Basic blocks of a function and where diverged lanes meet again.
#pragma once

#include "ptx/ir.hpp"

namespace singularity::ptx {

// Fills in function.blocks and the block of every branch target. Needs the instructions, and the functions
// that they call to know which of those do not return.
void build_control_flow(Function &function, const Module &module);

} // namespace singularity::ptx
