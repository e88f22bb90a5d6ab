// SPDX-License-Identifier: GPL-2.0-or-later
// Where the variables of a kernel's functions live.
#pragma once

#include "ptx/ir.hpp"

#include <cstdint>
#include <vector>

namespace singularity::softgpu::engine {

// Where variables live, for the functions of one kernel.
struct Layout {
    const ptx::Module *module = nullptr;
    const std::vector<std::uint64_t> *addresses = nullptr; // of global and constant variables, by index
    std::vector<std::uint64_t> module_shared;              // offsets of .shared variables of the module
    std::vector<std::vector<std::uint64_t>> own_shared;    // by function, by its variables
};

} // namespace singularity::softgpu::engine
