// SPDX-License-Identifier: GPL-2.0-or-later
// What --singularity-image, --singularity-mount, --singularity-workdir and --singularity-root say. Whether
// there is what they name is known on the node alone.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::spank {

struct MountOption {
    std::string source;
    std::string target;
    bool read_only = false;
};
// As node::kImageMountLimit.
inline constexpr std::size_t kMostMounts = 32;
// "SRC:DST[:ro]", with commas between several; each DST once, and no more than kMostMounts.
[[nodiscard]] Expected<std::vector<MountOption>> parse_image_mounts(std::string_view text);

[[nodiscard]] Expected<void> check_image_option(std::string_view text);
[[nodiscard]] Expected<void> check_workdir_option(std::string_view text);
// --singularity-root, and as --container-writable and --container-readonly say it.
inline constexpr std::string_view kRootWritable = "writable";
inline constexpr std::string_view kRootReadOnly = "read-only";
[[nodiscard]] Expected<void> check_root_option(std::string_view text);

} // namespace singularity::spank
