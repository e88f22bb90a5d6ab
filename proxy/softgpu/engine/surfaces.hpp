// SPDX-License-Identifier: GPL-2.0-or-later
// suld, sust and sured: bytes of an array, without any conversion.
#pragma once

#include "engine/context.hpp"
#include "engine/texture.hpp"

namespace singularity::softgpu::engine {

[[nodiscard]] const Surface &surface_of(const Context &context, unsigned lane, std::uint64_t number);
[[nodiscard]] Handler select_surface(const ptx::Instruction &instruction);

} // namespace singularity::softgpu::engine
