// SPDX-License-Identifier: GPL-2.0-or-later
// Where the compiler finds the handler of an instruction.
#pragma once

#include "engine/code.hpp"

namespace singularity::softgpu::engine {

// Of the instructions whose lanes do not see each other. nullptr: not one of the function's own.
using Selector = Handler (*)(const ptx::Instruction &, const Op &);

// Each is compiled for the oldest and for a newer instruction set; results are the same to the bit.
struct HandlerSet {
    Selector integer;
    Selector video; // of parts of integers
    Selector floating;
    Selector half;
    Selector convert;
    Selector logic; // comparison, selection, bits, moves
    Handler (*load)(ptx::Type type, const Op &op);
    Handler (*store)(ptx::Type type, const Op &op);
    // Row to row: from 4 to 8 bytes (signed or not) and from 8 to 4.
    Handler widen_unsigned;
    Handler widen_signed;
    Handler narrow;
    // A register of `whole` bytes from, and into, a tuple of values of `part` bytes.
    Handler (*pack)(std::uint32_t part, std::uint32_t whole);
    Handler (*unpack)(std::uint32_t part, std::uint32_t whole);
};
namespace lanes_base {
extern const HandlerSet kHandlers;
}
namespace lanes_v3 {
extern const HandlerSet kHandlers;
}
// The one for this processor; environment SINGULARITY_SOFTGPU_BASELINE=1 asks for the oldest.
[[nodiscard]] const HandlerSet &handlers();

// Lanes and warps together, control, atomics: compiled once.
namespace control {
void guard(Context &, const Op &);     // executes the next operation where the predicate o[0] holds
void branch(Context &, const Op &);    // target
void branch_if(Context &, const Op &); // o[0]; mode 1: if not; target, meeting
void branch_table(Context &, const Op &);
void meet(Context &, const Op &);
void call(Context &, const Op &);
void call_indirect(Context &, const Op &);
void leave_function(Context &, const Op &); // ret
void exit_lanes(Context &, const Op &);
void trap(Context &, const Op &);
void breakpoint(Context &, const Op &);
void nothing(Context &, const Op &);
void fence(Context &, const Op &);
void yield_turn(Context &, const Op &); // nanosleep
void special(Context &, const Op &);    // mov from a special register: mode
void frame_address(Context &, const Op &);
void parameter_address(Context &, const Op &);
void allocate_stack(Context &, const Op &);
void save_stack(Context &, const Op &);
void is_space(Context &, const Op &);
void barrier(Context &, const Op &);
void cluster_arrive(Context &, const Op &);
void cluster_wait(Context &, const Op &);
void print(Context &, const Op &);
void assertion(Context &, const Op &);
void allocate(Context &, const Op &);
void release(Context &, const Op &);
void set_conditional(Context &, const Op &);
} // namespace control

[[nodiscard]] Handler select_atomic(const ptx::Instruction &instruction);
[[nodiscard]] Handler select_collective(const ptx::Instruction &instruction);
[[nodiscard]] std::uint64_t collective_index(const ptx::Instruction &instruction); // Op::immediate of it
[[nodiscard]] Handler select_matrix(const ptx::Instruction &instruction);
// How many registers an operand of a matrix instruction has, and of how many bytes; 0: not said here.
struct TupleForm {
    unsigned count = 0;
    unsigned width = 0;
};
[[nodiscard]] std::array<TupleForm, 4> matrix_tuples(const ptx::Instruction &instruction);
[[nodiscard]] Handler select_texture(const ptx::Instruction &instruction);
[[nodiscard]] Handler select_asynchronous(const ptx::Instruction &instruction);

} // namespace singularity::softgpu::engine
