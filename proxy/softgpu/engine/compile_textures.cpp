// SPDX-License-Identifier: GPL-2.0-or-later
// Instructions on textures and surfaces. Op::o[0] is the row of the object's number; `extra` has, one behind
// the other, the rows of results or of what is stored, of coordinates, and of what else there is.
#include "engine/function_compiler.hpp"
#include "engine/sampling.hpp"

#include <algorithm>

namespace singularity::softgpu::engine {

void FunctionCompiler::add_elements(const Operand &operand, std::vector<Ref> &rows) {
    if (operand.kind != Operand::Kind::vector) {
        rows.push_back(source(operand));
        return;
    }
    for (std::uint32_t i = 0; i < operand.count; ++i)
        rows.push_back(source(function_.operands[operand.index + i]));
}

void FunctionCompiler::texture(const Instruction &instruction) {
    Op op;
    op.run = select_texture(instruction);
    std::vector<Ref> rows;
    std::vector<Destination> destinations;
    const bool writes = instruction.opcode == Opcode::sust || instruction.opcode == Opcode::sured;
    const std::uint32_t at = writes ? 0 : 1; // the object, and behind it the coordinates
    Operand object = operand(instruction, at);
    if (object.kind != Operand::Kind::reg || object.value != 0)
        unsupported("textures and surfaces are known by their objects only, not by references");
    object.memory = false;
    object.type = Type::b64;
    op.o[0] = source(object);
    // What is written into registers first: coordinates may be in the same ones, and are read before.
    const auto add_result = [&](Operand element) {
        destinations.push_back(destination(element));
        rows.push_back(destinations.back().written);
    };
    if (writes) {
        add_elements(operand(instruction, 2), rows);
    } else {
        const Operand &to = operand(instruction, 0);
        if (to.kind != Operand::Kind::vector)
            add_result(to);
        for (std::uint32_t i = 0; to.kind == Operand::Kind::vector && i < to.count; ++i)
            add_result(function_.operands[to.index + i]);
    }
    op.count = static_cast<std::uint8_t>(rows.size());
    if (instruction.operand_count > at + 1) {
        const std::size_t before = rows.size();
        add_elements(operand(instruction, at + 1), rows);
        op.access = static_cast<std::uint8_t>(rows.size() - before);
        if (op.access < coordinates_of(instruction.geometry))
            unsupported("it has too few coordinates");
    }
    if (instruction.mode == ptx::Mode::level)
        op.o[1] = source(operand(instruction, 3));
    op.extra = extra_rows(rows);
    emit(op);
    std::ranges::for_each(destinations, [&](const Destination &each) { finish(each); });
}

} // namespace singularity::softgpu::engine
