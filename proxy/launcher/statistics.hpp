// SPDX-License-Identifier: GPL-2.0-or-later
// What the processes of a program have left in the file SINGULARITY_PROXY_STATS, in one line.
#pragma once

#include <filesystem>
#include <string>

namespace singularity::launcher {

[[nodiscard]] std::string summary(const std::filesystem::path &file, unsigned devices,
                                  const std::string &driver);

} // namespace singularity::launcher
