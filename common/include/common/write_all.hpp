// SPDX-License-Identifier: GPL-2.0-or-later
// write(2) until all of it is written.
#pragma once

#include "common/error.hpp"

#include <string_view>

namespace singularity {

// For files and pipes that block. How much was written before an error is not told. name: of the file, for
// the error.
[[nodiscard]] Expected<void> write_all(int fd, std::string_view data, std::string_view name);

} // namespace singularity
