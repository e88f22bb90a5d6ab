// SPDX-License-Identifier: GPL-2.0-or-later
// Boxes of memory: from the wire to the driver's structs, with whose memory it is; and back.
#pragma once

#include "call.hpp"
#include "proxy/protocol/copy.hpp"

#include <expected>

namespace singularity::proxyd::handlers {

// `data`: packed rows of the box, for places of that kind. An error is what the program sees.
[[nodiscard]] std::expected<CUDA_MEMCPY3D, CUresult> box_copy(Call &call, const protocol::Place &destination,
                                                              const protocol::Place &source,
                                                              const protocol::Box &box, void *data);
// The driver's 2D function where it is enough: all drivers have that.
[[nodiscard]] CUresult copy_box(const driver_api::Backend &driver, const CUDA_MEMCPY3D &copy,
                                CUstream stream);

// What a memcpy node holds.
[[nodiscard]] protocol::Place source_place(Call &call, const CUDA_MEMCPY3D &copy);
[[nodiscard]] protocol::Place destination_place(Call &call, const CUDA_MEMCPY3D &copy);

} // namespace singularity::proxyd::handlers
