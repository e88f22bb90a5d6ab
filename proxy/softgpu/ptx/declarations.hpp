// SPDX-License-Identifier: GPL-2.0-or-later
// Variables and their initialisers, parameter lists: what modules and functions declare in the same words.
#pragma once

#include "ptx/ir.hpp"
#include "ptx/token_stream.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace singularity::ptx {

// A name in an initialiser; it may be declared later than it is used.
struct PendingRelocation {
    std::size_t relocation = 0; // index in the variable's list
    std::string_view symbol;
    std::uint32_t line = 0;
};

struct DeclaredVariable {
    std::string_view name; // in the text: outlives the variable
    Variable variable;
    std::vector<PendingRelocation> pending;
};

// From the word after the state space to the `;` with it: `.align 4 .b8 x[8] = {1, 2}, y;`. The state space
// and linkage are the caller's.
[[nodiscard]] std::vector<DeclaredVariable> parse_variables(TokenStream &tokens, Space space,
                                                            Linkage linkage);

// `( .param .u64 a, .param .align 16 .b8 b[32] )`, the brackets with it. Offsets are those of a kernel's
// buffer.
[[nodiscard]] std::vector<Parameter> parse_parameters(TokenStream &tokens);

// The next multiple of a power of two; complains instead of overflowing.
[[nodiscard]] std::uint64_t align_up(const TokenStream &tokens, std::uint64_t offset,
                                     std::uint32_t alignment);

// Places a variable behind what the frame holds.
[[nodiscard]] std::uint64_t place(const TokenStream &tokens, std::uint64_t &frame, std::uint64_t size,
                                  std::uint32_t alignment);

// `.b32` and the like; complains about what is no type.
[[nodiscard]] Type parse_type(TokenStream &tokens);

} // namespace singularity::ptx
