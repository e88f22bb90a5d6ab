// SPDX-License-Identifier: GPL-2.0-or-later
// Descriptors that lead out of a node: what CRIU calls them, and the table in the image that says which key
// each had.
#pragma once

#include "criu-hooks/host/node.hpp"

#include <map>
#include <string>
#include <vector>

namespace singularity::host {

// What an open descriptor leads to, as CRIU names it.
struct Resource {
    std::string inherit;  // for --inherit-fd, and for the table
    std::string external; // for --external at the dump; empty where CRIU needs no word of it
};

[[nodiscard]] Expected<Resource> resource_of(int fd);

using DescriptorTable = std::map<std::string, std::string>; // key -> Resource::inherit

[[nodiscard]] Expected<void> write_table(int images, const DescriptorTable &table);
[[nodiscard]] Expected<DescriptorTable> read_table(int images);

} // namespace singularity::host
