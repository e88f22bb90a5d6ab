// SPDX-License-Identifier: GPL-2.0-or-later
// Whole files, with a bound on what is read into memory.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::host {

[[nodiscard]] Expected<std::string> read_link(const std::filesystem::path &path);

// Regular files in a directory; a symbolic link is refused.
[[nodiscard]] Expected<std::string> read_file_at(int directory, const std::string &name, std::size_t largest);
[[nodiscard]] Expected<void> write_file_at(int directory, const std::string &name, std::string_view content);

// The names in a directory except "." and "..", sorted.
[[nodiscard]] Expected<std::vector<std::string>> names_in(int directory);
// Nothing if there are more than `most`: no more are read.
[[nodiscard]] Expected<std::optional<std::vector<std::string>>> names_in(int directory, std::size_t most);

// All of it, at the descriptor's position.
[[nodiscard]] Expected<void> write_all(int fd, std::span<const std::byte> data);

} // namespace singularity::host
