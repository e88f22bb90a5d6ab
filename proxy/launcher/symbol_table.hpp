// SPDX-License-Identifier: GPL-2.0-or-later
// The dynamic symbols of an object that the dynamic linker has mapped (elf(5)). Other objects are given what
// is in this table, however they ask: by a relocation of code or data, or by dlsym(3).
#pragma once

#include <cstdint>

#include <link.h>

namespace singularity::redirect {

// Address of the function that the object defines under this name; 0: it has none.
[[nodiscard]] std::uintptr_t symbol(const link_map &object, const char *name);

// From now on whoever looks the symbol up gets `address`; references that were resolved before stay. False:
// the object has no such symbol, or its table cannot be written to.
[[nodiscard]] bool replace_symbol(const link_map &object, const char *name, std::uintptr_t address);

} // namespace singularity::redirect
