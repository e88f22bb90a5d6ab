// SPDX-License-Identifier: GPL-2.0-or-later
// Instructions as texts, for messages.
#pragma once

#include "ptx/ir.hpp"

#include <string>

namespace singularity::softgpu::engine {

// As it was written, as far as the IR still knows: "ld.global.v4.f32".
[[nodiscard]] std::string spell(const ptx::Instruction &instruction);

} // namespace singularity::softgpu::engine
