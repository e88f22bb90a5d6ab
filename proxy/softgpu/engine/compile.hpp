// SPDX-License-Identifier: GPL-2.0-or-later
// A function of the IR -> code that runs.
#pragma once

#include "common/error.hpp"
#include "engine/code.hpp"
#include "engine/layout.hpp"

#include <cstdint>
#include <memory>

namespace singularity::softgpu::engine {

// Fails, naming the instruction, if something in it cannot be run.
[[nodiscard]] Expected<std::unique_ptr<Code>> compile_function(const Layout &layout, std::uint32_t index);

// Functions that every program may call and none defines: vprintf, malloc, free, __assertfail,
// cudaGraphSetConditional.
[[nodiscard]] bool is_built_in(const ptx::Function &function);
// The function itself, or the one that it is another name of.
[[nodiscard]] std::uint32_t resolve_alias(const ptx::Module &module, std::uint32_t function);

} // namespace singularity::softgpu::engine
