// SPDX-License-Identifier: GPL-2.0-or-later
// Between proxy/libcuda and the library it is a part of: what the export tables need that no public function
// gives, and what they must be told.
#pragma once

#include "proxy/libcuda/cuda.hpp"

extern "C" {

// Provided by the library: the handle that the next cuDevicePrimaryCtxRetain gives, without retaining.
[[gnu::visibility("hidden")]] CUresult singularity_primary_context_handle(CUcontext *context,
                                                                          CUdevice device);

// Provided by the library: two arrays from malloc(3), a byte for each pair of the current context's
// multiprocessors: the group that it is in, and its position there.
[[gnu::visibility("hidden")]] CUresult singularity_processor_places(unsigned char **groups,
                                                                    unsigned char **positions);

// Provided by the library: a table of its own for cuGetExportTable; nullptr: there is none of this name.
[[gnu::visibility("hidden")]] const void *singularity_export_table(const CUuuid &id);

// Provided here, called by the library without locks held: the context is gone or was reset. Runs the
// destructors of its context-local storage, which may call the driver.
[[gnu::visibility("hidden")]] void singularity_context_destroyed(CUcontext context);

} // extern "C"
