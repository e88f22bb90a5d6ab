// SPDX-License-Identifier: GPL-2.0-or-later
// What is in a regular file: where its data is, and whether it is what it was. Between the extents is nothing
// but zeros, whether the file has holes there or not.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace singularity::host {

struct Extent {
    std::uint64_t begin = 0; // bytes
    std::uint64_t size = 0;
    bool operator==(const Extent &) const = default;
};
using Extents = std::vector<Extent>; // in their order, without overlap

// Content that was copied: the bytes of all extents, one after the other, from `begin` of another file on.
struct Copy {
    Extents extents;
    std::uint64_t begin = 0;
};

// The data below `size`. Nothing: it has more than `most` bytes, or lies in more pieces than are counted.
[[nodiscard]] Expected<std::optional<Extents>> data_in(int file, std::uint64_t size, std::uint64_t most);

// All extents of `file`, to the end of `to`. False: `file` cannot be read; an error is of `to`.
[[nodiscard]] Expected<bool> append_copy(int file, const Extents &extents, int to);

// Whether the first `size` bytes of `file`, which may be shorter, are those of the copy in `from`.
[[nodiscard]] Expected<bool> is_as_copied(int file, std::uint64_t size, const Copy &copy, int from);

// Makes `file` what it was, `size` bytes long. What is right already is not written again.
[[nodiscard]] Expected<void> write_copy(int file, std::uint64_t size, const Copy &copy, int from);

// A hash of the first and of the last 64 KiB below `size`: tells a file that has only grown from one that was
// written anew, without reading all of it. Empty: the file is shorter than that.
[[nodiscard]] Expected<std::string> fingerprint_of(int file, std::uint64_t size);

// All from `begin` on, to the beginning of the empty file `to`, with the same holes.
[[nodiscard]] Expected<void> copy_rest(int file, std::uint64_t begin, int to);

} // namespace singularity::host
