// SPDX-License-Identifier: GPL-2.0-or-later
// Context-local storage: values that cudart and cuBLAS keep for a context under a key of theirs. cudart asks
// for one in every call of its API, so a look-up takes no lock when the thread asked for the same one before.
#pragma once

#include "proxy/libcuda/cuda.hpp"

namespace singularity::libcuda {

using StorageDestructor = void (*)(CUcontext context, void *key, void *value);

void put_context_value(CUcontext context, void *key, void *value, StorageDestructor destructor);
// False: there was none. Does not run the destructor: whoever takes a value back ends it.
bool delete_context_value(CUcontext context, void *key);
// False: there is none, and *value is left alone.
[[nodiscard]] bool get_context_value(CUcontext context, void *key, void **value);
// Runs the destructors, without a lock: they may call the driver.
void destroy_context_values(CUcontext context);

} // namespace singularity::libcuda
