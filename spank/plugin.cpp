// SPDX-License-Identifier: GPL-2.0-or-later
// The C edge of the SPANK plugin: names, one-line functions, nothing else. See spank_plugin.hpp for what they
// do.
#include "spank_plugin.hpp"

#include <cstdint>

#include <slurm/slurm_version.h>

namespace impl = singularity::spank;

#pragma GCC visibility push(default)
extern "C" {

// Declared first: a const definition alone would have internal linkage in C++.
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;

const char plugin_name[] = "singularity";
const char plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION_NUMBER;
const unsigned int spank_plugin_version = 1;

int slurm_spank_init(spank_t spank, int argc, char **argv) { return impl::init(spank, argc, argv); }
int slurm_spank_init_post_opt(spank_t spank, int, char **) { return impl::init_post_opt(spank); }
int slurm_spank_local_user_init(spank_t spank, int, char **) { return impl::local_user_init(spank); }
int slurm_spank_task_init(spank_t spank, int, char **) { return impl::task_init(spank); }
}
#pragma GCC visibility pop
