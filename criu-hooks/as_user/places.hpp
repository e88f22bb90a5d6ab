// SPDX-License-Identifier: GPL-2.0-or-later
// Which names are of the node's files, and which of criu's own.
#pragma once

namespace singularity::as_user {

// The name, as the second argument of an openat(2) whose first is `directory`.
[[nodiscard]] bool is_of_node(int directory, const char *name);

// criu has made it for itself.
void remember_directory(const char *name);

// criu opens by this name what it has already.
[[nodiscard]] bool is_criu_s_own(const char *name);

// The descriptor, or AT_FDCWD's ".", is on a file system of the kernel's account of processes.
[[nodiscard]] bool is_in_proc(int directory);

// All directories on the way to the name, which is not followed itself, are root's and nobody else may change
// them; no links, and no file system of a user's program (FUSE). Those above the last may also be of the
// node's own layer over its image. False also where that cannot be found out.
[[nodiscard]] bool is_below_roots_directories(int directory, const char *name);

} // namespace singularity::as_user
