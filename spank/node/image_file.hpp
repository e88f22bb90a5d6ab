// SPDX-License-Identifier: GPL-2.0-or-later
// An image that is one file: where in it the file system is.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstdint>
#include <string>

namespace singularity::node {

// The offset, in bytes, of the squashfs file system in a file: 0 of one that is nothing else (enroot's,
// mksquashfs'), or that of the primary system partition of an Apptainer image (SIF). name: of the file, for
// errors; each says what the file is, and what to do. It reads a few KiB, which may wait for the user's file
// system.
[[nodiscard]] Expected<std::uint64_t> squashfs_offset(const UniqueFd &file, const std::string &name);

} // namespace singularity::node
