// SPDX-License-Identifier: GPL-2.0-or-later
// select/cons_tres_singularity: what slurm's loader and its select interface call. The name must contain
// "cons_tres": slurmctld looks for that where a feature is cons_tres' alone (MaxNodeCount, dynamic nodes).
#include "export.hpp"
#include "opaque.hpp"
#include "plugin.hpp"
#include "select_operations.hpp"

#include <cstdint>

#include <slurm/slurm_version.h>
#include <sys/types.h>

using namespace singularity;
using namespace singularity::slurm;

namespace {

// Up to 24.11 every select plugin found is loaded and two with one id are fatal; 100 and more are for other
// people's. Since 25.05 only one is loaded, and slurmctld takes it for cons_tres by that plugin's id alone
// (running_cons_tres()).
constexpr std::uint32_t kConsTresId = 109;
constexpr std::uint32_t kFreeId = 188;

} // namespace

extern "C" {

// NOLINTBEGIN(modernize-avoid-c-arrays,readability-identifier-naming): the loader wants these names and types
SINGULARITY_EXPORT extern const char plugin_name[] =
    "Consumable trackable resources with transparent preemption";
SINGULARITY_EXPORT extern const char plugin_type[] = "select/cons_tres_singularity";
SINGULARITY_EXPORT extern const std::uint32_t plugin_version = SLURM_VERSION_NUMBER;
SINGULARITY_EXPORT extern const std::uint32_t plugin_id =
    SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0) ? kConsTresId : kFreeId;
SINGULARITY_EXPORT constinit Shared singularity_shared;
// NOLINTEND(modernize-avoid-c-arrays,readability-identifier-naming)

} // extern "C"

namespace {

// Never destroyed: slurmctld's threads may call until the process is gone.
SelectPlugin &plugin() {
    static SelectPlugin &instance =
        *new SelectPlugin(singularity_shared, select_operations::kBacking, select_operations::kNames);
    return instance;
}

} // namespace

extern "C" {

SINGULARITY_EXPORT int init() { return plugin().load(); }
SINGULARITY_EXPORT int fini() { return plugin().fini(); }

#include "select_forwarders.inc"

} // extern "C"
