// SPDX-License-Identifier: GPL-2.0-or-later
// What a user has named as an image and for it: found with no more rights than the user has.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "record.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace singularity::node {

// What has the image's name. It may wait for the user's file systems, without end; so may the next.
struct NamedImage {
    UniqueFd file;
    std::optional<std::uint64_t>
        squashfs; // of a file: where the file system is in it; otherwise it is a directory
};
[[nodiscard]] Expected<NamedImage> find_named(const Spec &spec);

// What is in the image, a directory, and what is mounted there.
struct FoundImage {
    std::vector<UniqueFd> sources; // of the user's mounts
    std::string passwd;
    std::string group;
};
[[nodiscard]] Expected<FoundImage> look_into(const Spec &spec, const UniqueFd &image);

// openat2(2), never by way of a link of /proc. errno says why there is none.
[[nodiscard]] UniqueFd open_by_name(int directory, const std::string &path, std::uint64_t flags,
                                    std::uint64_t resolve);

} // namespace singularity::node
