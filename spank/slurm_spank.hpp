// SPDX-License-Identifier: GPL-2.0-or-later
// spank.h for C++: in 22.05 its declarations are not wrapped for C++, and Slurm finds the hooks that it
// declares by name.
#pragma once

// What spank.h includes must come first, outside of the braces.
#include <slurm/slurm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#pragma GCC visibility push(default)
extern "C" {
#include <slurm/spank.h>
}
#pragma GCC visibility pop
