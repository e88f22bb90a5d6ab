// SPDX-License-Identifier: GPL-2.0-or-later
// priority/singularity: what slurm's loader and its priority interface call. Slurm compares PriorityType with
// "priority/basic" only, so under any other name multifactor behaves as it always does.
#include "export.hpp"
#include "opaque.hpp"
#include "plugin.hpp"
#include "priority_operations.hpp"

#include <cstdint>

#include <slurm/slurm_version.h>
#include <sys/types.h>

using namespace singularity;
using namespace singularity::slurm;

extern "C" {

// NOLINTBEGIN(modernize-avoid-c-arrays,readability-identifier-naming): the loader wants these names and types
SINGULARITY_EXPORT extern const char plugin_name[] = "Multifactor priority with transparent preemption";
SINGULARITY_EXPORT extern const char plugin_type[] = "priority/singularity";
SINGULARITY_EXPORT extern const std::uint32_t plugin_version = SLURM_VERSION_NUMBER;
// NOLINTEND(modernize-avoid-c-arrays,readability-identifier-naming)

} // extern "C"

namespace {

// Never destroyed: slurmctld's threads may call until the process is gone.
PriorityPlugin &plugin() {
    static PriorityPlugin &instance =
        *new PriorityPlugin(priority_operations::kBacking, priority_operations::kNames);
    return instance;
}

} // namespace

extern "C" {

SINGULARITY_EXPORT int init() { return plugin().init(); }
SINGULARITY_EXPORT int fini() { return plugin().unload(); }

#include "priority_forwarders.inc"

} // extern "C"
