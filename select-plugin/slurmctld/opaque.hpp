// SPDX-License-Identifier: GPL-2.0-or-later
// The types in the signatures of slurm's operations: pointers to them are passed on, nothing is known of what
// they hold.
#pragma once

#include "select-plugin/hooks.hpp"

namespace singularity::slurm {

using hooks::Bitmap;
using hooks::JobRecord;
using hooks::List;
struct Buffer;
struct NodeRecord;
struct SelectJobInfo;
struct SelectNodeInfo;
struct StepRecord;

} // namespace singularity::slurm
