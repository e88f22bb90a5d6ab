// SPDX-License-Identifier: GPL-2.0-or-later
// What a user has named as an image and for it: found with no more rights than the user has.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "record.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace singularity::node {

struct FoundImage {
    UniqueFd image;
    std::vector<UniqueFd> sources; // of the user's mounts
    std::string passwd;
    std::string group;
};
// It may wait for the user's file systems, without end.
[[nodiscard]] Expected<FoundImage> find_image(const Spec &spec);

// openat2(2), never by way of a link of /proc. errno says why there is none.
[[nodiscard]] UniqueFd open_by_name(int directory, const std::string &path, std::uint64_t flags,
                                    std::uint64_t resolve);

[[nodiscard]] std::unexpected<Error> refuse_mount(const ImageMount &one, std::string why);

} // namespace singularity::node
