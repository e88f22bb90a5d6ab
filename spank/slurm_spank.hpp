// SPDX-License-Identifier: GPL-2.0-or-later
// spank.h for C++: in 22.05 its declarations are not wrapped for C++, and Slurm finds the hooks that it declares by name.
#pragma once

// What spank.h includes must come first, outside of the braces.
#include <stdint.h>    // NOLINT(modernize-deprecated-headers)
#include <stdio.h>     // NOLINT(modernize-deprecated-headers)
#include <stdlib.h>    // NOLINT(modernize-deprecated-headers)
#include <sys/types.h> // NOLINT(modernize-deprecated-headers)
#include <unistd.h>

#include <slurm/slurm.h>

#pragma GCC visibility push(default)
extern "C" {
#include <slurm/spank.h>
}
#pragma GCC visibility pop
