// SPDX-License-Identifier: GPL-2.0-or-later
// Instructions that make a value of values, lane by lane.
#include "engine/function_compiler.hpp"

#include <algorithm>

namespace singularity::softgpu::engine {

namespace {

std::uint8_t float_mode(const Instruction &instruction) {
    constexpr std::pair<Flag, unsigned> bits[] = {{Flag::ftz, 1}, {Flag::sat, 2},      {Flag::relu, 4},
                                                  {Flag::nan, 8}, {Flag::xorsign, 16}, {Flag::abs, 32},
                                                  {Flag::oob, 64}};
    unsigned mode = 0;
    for (const auto &[flag, bit] : bits)
        mode |= instruction.has(flag) ? bit : 0;
    if (instruction.opcode == Opcode::cvt && instruction.has(Flag::satfinite))
        mode |= 8;
    return static_cast<std::uint8_t>(mode);
}

// What true is, of set.
std::uint64_t truth(Type type, Type compared) {
    const bool pair = compared == Type::f16x2 || compared == Type::bf16x2;
    switch (type) {
    case Type::f32:
        return 0x3F800000U;
    case Type::f16:
    case Type::f16x2:
        return 0x3C00U;
    case Type::bf16:
    case Type::bf16x2:
        return 0x3F80U;
    default:
        return pair ? 0xFFFFU : 0xFFFFFFFFU;
    }
}

} // namespace

bool has_predicate_pair(const Instruction &instruction) {
    switch (instruction.opcode) {
    case Opcode::setp:
    case Opcode::shfl:
    case Opcode::elect:
        return true;
    case Opcode::lop3:
        return instruction.operation != ptx::Operation::none;
    case Opcode::match:
        return instruction.mode == ptx::Mode::all;
    default:
        return false;
    }
}

bool FunctionCompiler::move(const Instruction &instruction) {
    const Operand &to = operand(instruction, 0);
    const Operand &from = operand(instruction, 1);
    const Type type = instruction.types[0];
    if (to.kind == Operand::Kind::vector || from.kind == Operand::Kind::vector) {
        move_tuple(to, from, type);
        return true;
    }
    const Destination into = destination(to);
    if (from.kind == Operand::Kind::special) {
        add_guarded({.run = control::special,
                     .o = {into.written, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent},
                     .immediate = row_width(type),
                     .mode = static_cast<std::uint8_t>(from.index)});
        finish(into);
        return true;
    }
    return false;
}

void FunctionCompiler::move_tuple(const Operand &to, const Operand &from, Type type) {
    const bool unpacks = to.kind == Operand::Kind::vector;
    const Operand &tuple = unpacks ? to : from;
    const Operand &whole = unpacks ? from : to;
    if (whole.kind == Operand::Kind::vector) // element by element: mov.v2 and the like
        unsupported("tuples on both sides");
    Op op;
    op.count = tuple.count;
    op.mode = static_cast<std::uint8_t>(ptx::type_size(type));
    std::vector<Ref> rows;
    std::vector<Destination> destinations;
    const std::uint32_t part = ptx::type_size(type) / std::max<std::uint32_t>(tuple.count, 1);
    for (std::uint32_t i = 0; i < tuple.count; ++i) {
        Operand element = function_.operands[tuple.index + i];
        if (element.type == Type::none)
            unsupported("a tuple does not divide its register");
        // A part in a register wider than itself is read as it is; its upper bits are cut off.
        if (element.kind == Operand::Kind::reg && row_width(function_.registers[element.index]) == 8 &&
            part < 8)
            unsupported("an element of the tuple does not fit its register");
        if (unpacks) {
            destinations.push_back(destination(element));
            rows.push_back(destinations.back().written);
        } else {
            rows.push_back(source(element));
        }
    }
    op.extra = extra_rows(rows);
    Operand typed = whole;
    typed.type = type;
    const Destination into = unpacks ? Destination{} : destination(typed);
    op.o[0] = unpacks ? source(typed) : into.written;
    op.run =
        unpacks ? handlers().unpack(part, ptx::type_size(type)) : handlers().pack(part, ptx::type_size(type));
    kind_ = unpacks ? OpKind::unpack : OpKind::pack;
    emit(op);
    finish(into);
    std::ranges::for_each(destinations, [&](const Destination &each) { finish(each); });
}

void FunctionCompiler::set_modes(const Instruction &instruction, Op &op) {
    using ptx::Rounding;
    const Rounding rounding = instruction.rounding;
    if (rounding == Rounding::rz || rounding == Rounding::rm || rounding == Rounding::rp)
        op.rounding = static_cast<std::uint8_t>(rounding);
    switch (instruction.opcode) {
    case Opcode::setp:
        op.mode = static_cast<std::uint8_t>(instruction.operation);
        op.access = 1;
        break;
    case Opcode::set:
        op.mode = static_cast<std::uint8_t>(instruction.operation);
        op.immediate = truth(instruction.types[0], instruction.types[1]);
        break;
    case Opcode::testp:
        op.mode = static_cast<std::uint8_t>(instruction.operation);
        break;
    case Opcode::slct:
        op.mode = instruction.types[1] != Type::f32 ? 0 : instruction.has(Flag::ftz) ? 2 : 1;
        break;
    case Opcode::prmt:
        op.mode = instruction.mode == ptx::Mode::none
                      ? 0
                      : static_cast<std::uint8_t>(static_cast<unsigned>(instruction.mode) -
                                                  static_cast<unsigned>(ptx::Mode::f4e) + 1);
        break;
    case Opcode::addc:
    case Opcode::subc:
    case Opcode::madc:
        op.mode = instruction.has(Flag::cc) ? 3 : 2;
        break;
    case Opcode::vset:
    case Opcode::vset2:
    case Opcode::vset4:
        op.mode = static_cast<std::uint8_t>((instruction.has(Flag::accumulate) ? 2U : 0U) |
                                            (ptx::is_signed(instruction.types[0]) ? 8U : 0U) |
                                            (ptx::is_signed(instruction.types[1]) ? 16U : 0U));
        op.access = static_cast<std::uint8_t>(instruction.operation);
        break;
    default:
        if (instruction.has(Flag::cc))
            op.mode = 1;
        else if (ptx::is_float(instruction.types[0]) || instruction.opcode == Opcode::cvt)
            op.mode = float_mode(instruction);
        else if (instruction.types[2] != Type::none) { // vadd2 and its kin
            op.mode = static_cast<std::uint8_t>((instruction.has(Flag::sat) ? 1U : 0U) |
                                                (instruction.has(Flag::accumulate) ? 2U : 0U) |
                                                (ptx::is_signed(instruction.types[0]) ? 4U : 0U) |
                                                (ptx::is_signed(instruction.types[1]) ? 8U : 0U) |
                                                (ptx::is_signed(instruction.types[2]) ? 16U : 0U) |
                                                (instruction.mode == ptx::Mode::wrap ? 32U : 0U));
            op.access = static_cast<std::uint8_t>(instruction.operation);
        }
        break;
    }
}

void FunctionCompiler::logic_table(const Instruction &instruction, Op &op) {
    const bool with_predicate = instruction.operation != ptx::Operation::none;
    const std::uint32_t first = with_predicate ? 2 : 1;
    const Operand &table = operand(instruction, first + 3);
    if (table.kind != Operand::Kind::immediate)
        unsupported("the truth table is not a constant");
    op.immediate = table.value;
    for (std::uint32_t i = 0; i < 3; ++i)
        op.o[first + i] = source(operand(instruction, first + i));
    if (with_predicate) {
        op.mode = static_cast<std::uint8_t>(instruction.operation);
        op.o[5] = source(operand(instruction, 6));
    }
}

// Where the parts that a video instruction works on are: Op::immediate, as lanes_integer.cpp reads it.
void FunctionCompiler::video_parts(const Instruction &instruction, Op &op) const {
    const auto selector = [&](std::uint32_t at) { return operand(instruction, at).selector; };
    const unsigned elements = ptx::video_elements(instruction.opcode);
    if (elements == 0) {
        for (std::uint32_t i = 0; i < 3; ++i) {
            const ptx::Selector part = selector(i);
            // 0: all of it, 1 to 4: a byte, 5 and 6: a half.
            const std::uint64_t code = part.width == 0 ? 0 : (part.width == 8 ? 1 : 5) + part.digit(0);
            op.immediate |= code << (4 * i);
        }
        if (selector(0).width != 0 && (instruction.operation != ptx::Operation::none || op.o[3] == kAbsent))
            unsupported("a part of the destination needs a third operand, and no second operation");
        return;
    }
    std::uint64_t mask = 0;
    for (unsigned at = 0; at < elements; ++at) {
        const ptx::Selector a = selector(1);
        const ptx::Selector b = selector(2);
        op.immediate |= std::uint64_t{a.width != 0 ? a.digit(at) : at} << (4 * at);
        op.immediate |= std::uint64_t{b.width != 0 ? b.digit(at) : elements + at} << (16 + 4 * at);
        mask |= std::uint64_t{1} << at;
    }
    if (const ptx::Selector chosen = selector(0); chosen.width != 0) {
        mask = 0;
        for (unsigned at = 0; at < chosen.count; ++at)
            mask |= std::uint64_t{1} << chosen.digit(at);
    }
    op.immediate |= mask << 32U;
}

// vmad: what is negated, and by how much the sum is shifted.
void FunctionCompiler::product_and_sum(const Instruction &instruction, Op &op) const {
    const bool product = operand(instruction, 1).negated != operand(instruction, 2).negated;
    const bool third = operand(instruction, 3).negated;
    if (product && third)
        unsupported("both the product and the third operand are negated");
    op.mode = static_cast<std::uint8_t>(
        (instruction.has(Flag::sat) ? 1U : 0U) | (instruction.has(Flag::plus_one) ? 2U : 0U) |
        (ptx::is_signed(instruction.types[1]) ? 8U : 0U) | (ptx::is_signed(instruction.types[2]) ? 16U : 0U) |
        (product ? 32U : 0U) | (third ? 64U : 0U));
    op.access = instruction.mode == ptx::Mode::shr7 ? 7 : instruction.mode == ptx::Mode::shr15 ? 15 : 0;
}

void FunctionCompiler::plain(const Instruction &instruction) {
    Op op;
    const bool pair = has_predicate_pair(instruction);
    const Destination into = destination(operand(instruction, 0));
    op.o[0] = into.written;
    if (pair && operand(instruction, 1).kind != Operand::Kind::none)
        op.o[1] = destination(operand(instruction, 1)).written;
    if (instruction.opcode == Opcode::lop3) {
        logic_table(instruction, op);
    } else {
        if (instruction.operand_count > op.o.size())
            unsupported("it has too many operands");
        for (std::uint32_t i = pair ? 2 : 1; i < instruction.operand_count; ++i)
            if (operand(instruction, i).kind != Operand::Kind::none)
                op.o[i] = source(operand(instruction, i));
    }
    set_modes(instruction, op);
    if (ptx::is_scalar_video(instruction.opcode) || ptx::video_elements(instruction.opcode) != 0)
        video_parts(instruction, op);
    if (instruction.opcode == Opcode::vmad)
        product_and_sum(instruction, op);
    const HandlerSet &set = handlers();
    for (const Selector select : {set.half, set.floating, set.convert, set.integer, set.video, set.logic})
        if (op.run == nullptr)
            op.run = select(instruction, op);
    const bool carries = instruction.has(Flag::cc) || instruction.opcode == Opcode::addc ||
                         instruction.opcode == Opcode::subc || instruction.opcode == Opcode::madc;
    if (carries)
        op.extra = carry_;
    kind_ = carries ? OpKind::carry : pair ? OpKind::pair : OpKind::plain;
    emit(op);
    if (carries)
        carries_[size() - 1] = true;
    finish(into);
}

} // namespace singularity::softgpu::engine
