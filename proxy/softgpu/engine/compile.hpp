// SPDX-License-Identifier: GPL-2.0-or-later
// A function of the IR -> code that runs.
#pragma once

#include "common/error.hpp"
#include "engine/code.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace singularity::softgpu::engine {

// Where variables live, for the functions of one kernel.
struct Layout {
    const ptx::Module *module = nullptr;
    const std::vector<std::uint64_t> *addresses = nullptr; // of global and constant variables, by index
    std::vector<std::uint64_t> module_shared;              // offsets of .shared variables of the module
    std::vector<std::vector<std::uint64_t>> own_shared;    // by function, by its variables
};

// Fails, naming the instruction, if something in it cannot be run.
[[nodiscard]] Expected<std::unique_ptr<Code>> compile_function(const Layout &layout, std::uint32_t index);

// As it was written, as far as the IR still knows: "ld.global.v4.f32".
[[nodiscard]] std::string spell(const ptx::Instruction &instruction);

// Functions that every program may call and none defines: vprintf, malloc, free, __assertfail.
[[nodiscard]] bool is_built_in(const ptx::Function &function);
// The function itself, or the one that it is another name of.
[[nodiscard]] std::uint32_t resolve_alias(const ptx::Module &module, std::uint32_t function);

} // namespace singularity::softgpu::engine
