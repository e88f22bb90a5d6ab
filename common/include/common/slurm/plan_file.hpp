// SPDX-License-Identifier: GPL-2.0-or-later
// Where singularity-planner writes what it thinks, on the host where it runs, for everybody to read.
#pragma once

namespace singularity::slurm {

constexpr const char *kPlanDirectory = "/run/singularity-planner";
constexpr const char *kPlanFile = "/run/singularity-planner/plan";

} // namespace singularity::slurm
