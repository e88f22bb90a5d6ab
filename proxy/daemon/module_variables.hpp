// SPDX-License-Identifier: GPL-2.0-or-later
// Which variables a module image has. The driver knows a variable by its name only, and does not tell names.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::proxyd {

struct ModuleNames {
    std::vector<std::string> variables; // names that may be variables in memory; the driver says which are
    bool allocates = false;             // its kernels may call malloc: memory that nobody else can find
};

// image: a fatbin, several (fatbins.hpp), an ELF file or PTX text. What cannot be read has no names.
[[nodiscard]] ModuleNames names_of_module(std::span<const std::byte> image, unsigned compute_capability);
// Of PTX text: variables of the module in the state spaces .global and .const.
[[nodiscard]] ModuleNames names_of_ptx(std::string_view text);

} // namespace singularity::proxyd
