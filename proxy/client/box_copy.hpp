// SPDX-License-Identifier: GPL-2.0-or-later
// Copies of boxes: 2D and 3D, device memory, arrays, shared host memory and the program's own.
#pragma once

#include "copy.hpp"
#include "proxy/protocol/copy.hpp"

#include <cstdint>

namespace singularity::client {

// One end as the program gives it.
struct BoxEnd {
    CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
    std::uint64_t address = 0; // host or device, or an array's handle
    std::uint64_t level = 0;
    std::uint64_t x = 0;
    std::uint64_t y = 0;
    std::uint64_t z = 0;
    std::uint64_t pitch = 0;
    std::uint64_t height = 0;
};

struct BoxCopy {
    BoxEnd destination;
    BoxEnd source;
    protocol::Box box;
};

// From the driver's structs.
[[nodiscard]] BoxCopy box_of(const CUDA_MEMCPY2D &copy);
[[nodiscard]] BoxCopy box_of(const CUDA_MEMCPY3D &copy);
[[nodiscard]] BoxCopy box_of(const CUDA_MEMCPY3D_PEER &copy);

// Where an end is: memory that a daemon reaches (place), or the program's (memory, with pitch and height).
struct ResolvedEnd {
    protocol::Place place;
    Session *session = nullptr;  // of device memory and arrays
    std::byte *memory = nullptr; // of the box's first byte; nullptr: it is a place
    std::uint64_t pitch = 0;
    std::uint64_t slice = 0; // bytes from slice to slice
};
[[nodiscard]] CUresult resolve(const BoxEnd &end, const protocol::Box &box, ResolvedEnd &out);

[[nodiscard]] CUresult copy_box(const Route &route, std::uint64_t stream, const BoxCopy &copy, Wait wait);

} // namespace singularity::client
