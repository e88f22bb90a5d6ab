// SPDX-License-Identifier: GPL-2.0-or-later
// For x86-64-v3: compiled with that, and called only where the processor has it.
#include "loops.hpp"

#include <tuple>

namespace singularity::collectives {

namespace {
#include "reduce_loops.hpp"
} // namespace

const Loops *vector_loops() { return Table<Elements>::kLoops; }

} // namespace singularity::collectives
