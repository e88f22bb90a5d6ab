// SPDX-License-Identifier: GPL-2.0-or-later
// Small files that others read while they are written again.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <filesystem>
#include <string_view>

#include <sys/types.h>

namespace singularity {

enum class Durable : std::uint8_t {
    kNo,  // nobody needs it after a crash of the machine: a disk that is busy holds up nobody
    kYes, // it is on disk, or what was there before still is
};

// Who reads the file sees all of what was there before or all of this. In a directory where nobody else can
// make files.
[[nodiscard]] Expected<void> replace_file(const std::filesystem::path &path, std::string_view text,
                                          mode_t mode, Durable durable);

} // namespace singularity
