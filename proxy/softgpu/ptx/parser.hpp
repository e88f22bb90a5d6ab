// SPDX-License-Identifier: GPL-2.0-or-later
// PTX text -> IR.
#pragma once

#include "ptx/ir.hpp"

#include <string_view>

namespace singularity::ptx {

// Fails, naming the line, if the text is not PTX: a broken word, a name that is not declared, an unbalanced
// brace. Text that is PTX but holds something this reader does not know (a newer instruction, a texture)
// succeeds: the function that holds it says so in Function::unsupported.
[[nodiscard]] Expected<Module> parse_module(std::string_view source);

} // namespace singularity::ptx
