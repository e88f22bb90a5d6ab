// SPDX-License-Identifier: GPL-2.0-or-later
// What criu and the library in ../../../as_user are told by whoever starts criu.
#pragma once

namespace singularity::as_user {

// "WORK:UID:GID:DEVICE:INODE:FD" in criu's environment: what it is to do, whose node it is, of a restore the
// directory that is its root, and a descriptor to which kLoaded is written. Numbers are decimal.
constexpr const char *kVariable = "SINGULARITY_CRIU_USER";
constexpr char kRestore = 'r';
constexpr char kDump = 'd';
constexpr char kLoaded = 'y';

// Installed beside the programs that restore.
constexpr const char *kLibrary = "libsingularity_criu_user.so";

} // namespace singularity::as_user
