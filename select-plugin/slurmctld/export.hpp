// SPDX-License-Identifier: GPL-2.0-or-later
// Marks what the program that loads a plugin looks up in it by name.
#pragma once

#define SINGULARITY_EXPORT __attribute__((visibility("default")))
