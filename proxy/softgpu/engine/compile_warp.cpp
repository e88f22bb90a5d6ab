// SPDX-License-Identifier: GPL-2.0-or-later
// Instructions that the lanes of a warp or a block execute together.
#include "engine/function_compiler.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace singularity::softgpu::engine {

void FunctionCompiler::barrier(const Instruction &instruction) {
    if (instruction.mode == ptx::Mode::warp) {
        Op op;
        op.o[2] = source(operand(instruction, 0));
        collective(instruction, op);
        return;
    }
    if (instruction.scope == ptx::Scope::cluster) {
        add({.run = instruction.mode == ptx::Mode::arrive ? control::cluster_arrive : control::cluster_wait});
        return;
    }
    Op op;
    op.run = control::barrier;
    op.mode = static_cast<std::uint8_t>(instruction.mode);
    std::uint32_t next = 0;
    Destination into;
    if (instruction.mode == ptx::Mode::red) {
        into = destination(operand(instruction, next++));
        op.o[0] = into.written;
        op.key = static_cast<std::uint16_t>(instruction.operation);
    }
    op.o[1] = source(operand(instruction, next++));
    const bool predicate_last = instruction.mode == ptx::Mode::red;
    const std::uint32_t left = instruction.operand_count - next - (predicate_last ? 1 : 0);
    if (left > 0 && operand(instruction, next).kind != Operand::Kind::none)
        op.o[2] = source(operand(instruction, next));
    if (predicate_last)
        op.o[3] = source(operand(instruction, instruction.operand_count - 1));
    add(op);
    finish(into);
}

void FunctionCompiler::collective(const Instruction &instruction, Op op) {
    op.run = select_collective(instruction);
    op.immediate = collective_index(instruction);
    if (op.run == nullptr)
        unsupported("the engine does not know it");
    op.key = static_cast<std::uint16_t>(
        (static_cast<unsigned>(instruction.opcode) << 8U) ^ (static_cast<unsigned>(instruction.mode) << 4U) ^
        (static_cast<unsigned>(instruction.operation) << 2U) ^ static_cast<unsigned>(instruction.types[0]));
    add(op);
}

void FunctionCompiler::collective_instruction(const Instruction &instruction) {
    Op op;
    const bool pair = has_predicate_pair(instruction);
    const Destination into = destination(operand(instruction, 0));
    op.o[0] = into.written;
    if (pair && operand(instruction, 1).kind != Operand::Kind::none)
        op.o[1] = destination(operand(instruction, 1)).written;
    // The member mask goes to o[2]; the values after it.
    Ref members = kAbsent;
    std::vector<Ref> values;
    for (std::uint32_t i = pair ? 2 : 1; i < instruction.operand_count; ++i) {
        const Operand &each = operand(instruction, i);
        if (each.kind == Operand::Kind::none)
            continue;
        values.push_back(source(each));
    }
    const bool synchronous = instruction.has(Flag::sync);
    if (synchronous && !values.empty()) {
        members = values.back();
        values.pop_back();
    }
    op.o[2] = members;
    for (std::size_t i = 0; i < values.size() && i < 3; ++i)
        op.o[3 + i] = values[i];
    op.mode = static_cast<std::uint8_t>(instruction.mode);
    collective(instruction, op);
    finish(into);
}

void FunctionCompiler::matrix(const Instruction &instruction) {
    Op op;
    std::vector<Ref> rows;
    op.run = select_matrix(instruction);
    if (op.run == nullptr)
        unsupported("the engine does not know it");
    const auto tuples = matrix_tuples(instruction);
    for (std::uint32_t i = 0; i < instruction.operand_count; ++i) {
        const Operand &each = operand(instruction, i);
        if (each.kind == Operand::Kind::none)
            continue;
        if (each.memory) {
            set_address(op, each, instruction.spaces[0] == Space::none ? Space::none : instruction.spaces[0],
                        16);
            continue;
        }
        const bool writes = i == 0 && instruction.opcode != Opcode::stmatrix;
        const std::uint32_t count = each.kind == Operand::Kind::vector ? each.count : 1;
        const TupleForm form = i < tuples.size() ? tuples[i] : TupleForm{};
        if (form.count != 0 && form.count != count)
            unsupported(fmt::format("its operand {} has {} registers and not {}", i, count, form.count));
        for (std::uint32_t k = 0; k < count; ++k) {
            const Operand &element =
                each.kind == Operand::Kind::vector ? function_.operands[each.index + k] : each;
            const Type type =
                element.kind == Operand::Kind::reg ? function_.registers[element.index] : element.type;
            if (form.count != 0 && row_width(type) != form.width)
                unsupported(fmt::format("its operand {} is of registers of {} bytes and not {}", i,
                                        row_width(type), form.width));
            if (element.kind == Operand::Kind::reg) {
                rows.push_back(register_row(element.index));
            } else if (writes) {
                rows.push_back(destination(element).written);
            } else {
                rows.push_back(source(element));
            }
        }
        op.key =
            static_cast<std::uint16_t>(op.key | (count << (4 * std::min(i, 3U)))); // lengths of the tuples
    }
    op.extra = extra_rows(rows);
    op.count = static_cast<std::uint8_t>(rows.size());
    add(op);
}

} // namespace singularity::softgpu::engine
