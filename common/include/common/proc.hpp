// SPDX-License-Identifier: GPL-2.0-or-later
// Texts of proc(5), which several components read. A line that is none of its kind is left out.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace singularity::proc {

// More bytes than this only a maps file has.
inline constexpr std::size_t kUsual = std::size_t{16} << 20U;

// A whole file, of /proc or as short, of at most so many bytes. ESRCH or ENOENT: the process has ended;
// EFBIG.
[[nodiscard]] Expected<std::string> read(const std::string &path, std::size_t largest = kUsual);

// A line of /proc/PID/mountinfo; names with their spaces.
struct Mount {
    std::uint64_t id = 0; // STATX_MNT_ID
    dev_t device = 0;
    std::string root;  // what of the file system is mounted
    std::string point; // as the process sees it
    std::string type;
    std::string source;
    std::string options; // the file system's
};
[[nodiscard]] std::vector<Mount> mounts(std::string_view mountinfo);

// The columns of /proc/PID/stat from the third on, which is the state; the program's name in the second may
// hold anything.
[[nodiscard]] std::vector<std::string_view> stat_columns(std::string_view stat);

// What follows "LABEL:" and blanks in /proc/PID/status.
[[nodiscard]] std::string_view status_line(std::string_view status, std::string_view label);

} // namespace singularity::proc
