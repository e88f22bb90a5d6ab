// SPDX-License-Identifier: GPL-2.0-or-later
// What criu and the library in ../../../as_user are told by whoever starts criu.
#pragma once

#include <cstdint>

namespace singularity::as_user {

// "WORK:UID:GID:DEVICE:INODE:FD:TABLE" in criu's environment: what it is to do, whose node it is, of a
// restore the directory that is its root, a descriptor to which kLoaded is written, and one of a file of
// Placed. Numbers are decimal.
constexpr const char *kVariable = "SINGULARITY_CRIU_USER";
constexpr char kRestore = 'r';
constexpr char kDump = 'd';
constexpr char kLoaded = 'y';

// A process of the node that is restored, by its id there, and the number of a descriptor of criu's: it
// writes "0" to that file before it does anything else. As often as there are hierarchies.
struct Placed {
    std::int32_t pid;
    std::int32_t cgroup_procs;
};

// Installed beside the programs that restore.
constexpr const char *kLibrary = "libsingularity_criu_user.so";

} // namespace singularity::as_user
