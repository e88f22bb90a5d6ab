// SPDX-License-Identifier: GPL-2.0-or-later
// Where the package lies.
#pragma once

#include "common/error.hpp"

#include <filesystem>

namespace singularity {

// Of the parts that programs start or load: what SINGULARITY_LIBDIR says, or beside this program's directory.
// Call it before there are threads.
[[nodiscard]] Expected<std::filesystem::path> library_directory();

} // namespace singularity
