// SPDX-License-Identifier: GPL-2.0-or-later
// Where on this machine the files of an image are, before the node is there.
#pragma once

#include "criu-hooks/host/node.hpp"
#include "wire.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::host {

// Where the files of a mount are; nothing if they come from the image.
struct Place {
    std::string mount_point;
    std::optional<std::filesystem::path> outside;
    bool kept = false; // OutsideMount::kept
};
using Places = std::map<std::uint64_t, Place>;

// By the mounts' numbers in the image.
[[nodiscard]] Expected<Places> places_of(const RestoreRequest &request);

// "/home/alice/out.log" on a mount at "/home" that is bound from "/data/home": "/data/home/alice/out.log". An
// error: the name leads out of the mount, by ".." or because it begins elsewhere.
[[nodiscard]] Expected<std::optional<std::filesystem::path>>
present_path(const Places &places, std::uint64_t mount, std::string_view name);

[[nodiscard]] std::string text_of(const std::vector<Field> &fields, std::uint32_t number);

} // namespace singularity::host
