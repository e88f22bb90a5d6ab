// SPDX-License-Identifier: GPL-2.0-or-later
// For every processor of the architecture.
#include "loops.hpp"

#include <tuple>

namespace singularity::collectives {

namespace {
#include "reduce_loops.hpp"
} // namespace

const Loops *plain_loops() { return Table<Elements>::kLoops; }

} // namespace singularity::collectives
