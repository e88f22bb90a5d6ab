// SPDX-License-Identifier: GPL-2.0-or-later
// How long a module image is: the driver API is given an address and nothing else.
// An image is a fatbin's wrapper as nvcc makes it, a fatbin, a 64-bit ELF file, or PTX text that ends at a
// NUL.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace singularity::client {

struct FoundImage {
    std::span<const std::byte> bytes; // in the caller's memory, or in `joined`
    std::vector<std::byte> joined;    // where the image is not in one piece
};

// The image in memory that ends somewhere behind its begin; reads no further than it must. A wrapper's image
// is the fatbin that it points to; with those of its list, which the driver links (nvcc -rdc=true), it is
// all of them as they travel: protocol::kFatbinAlignment. PTX: without the NUL.
[[nodiscard]] Expected<FoundImage> image_at(const void *memory);

// Of an image that begins with these bytes and lies wholly in them; no wrapper. PTX may end with the bytes
// instead of a NUL.
[[nodiscard]] Expected<std::size_t> image_length(std::span<const std::byte> bytes);

} // namespace singularity::client
