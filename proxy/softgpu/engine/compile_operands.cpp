// SPDX-License-Identifier: GPL-2.0-or-later
// Operands: which row a source is read from, where a result goes, what an address is.
#include "common/text.hpp"
#include "engine/compile.hpp"
#include "engine/function_compiler.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace singularity::softgpu::engine {

Handler predicate_not() {
    Instruction instruction;
    instruction.opcode = Opcode::not_;
    instruction.types[0] = Type::pred;
    return handlers().logic(instruction, Op{});
}

FunctionCompiler::Address FunctionCompiler::address_of(const Operand &operand) {
    switch (operand.kind) {
    case Operand::Kind::variable: {
        const ptx::Variable &variable = module_.variables[operand.index];
        if (variable.space == Space::shared)
            return {nullptr, layout_.module_shared[operand.index] + operand.value};
        const std::uint64_t address = (*layout_.addresses)[operand.index];
        if (address == 0 && variable.size != 0)
            unsupported(fmt::format("{} has no address", quote(variable.name)));
        return {nullptr, address + operand.value};
    }
    case Operand::Kind::own_variable: {
        const ptx::Variable &variable = function_.variables[operand.index];
        if (variable.space == Space::shared)
            return {nullptr, layout_.own_shared[code_->index][operand.index] + operand.value};
        return {control::frame_address, frame_offset(operand)};
    }
    case Operand::Kind::parameter:
        if (function_.kernel)
            return {control::parameter_address, function_.parameters[operand.index].offset + operand.value};
        return {control::frame_address, frame_offset(operand)};
    case Operand::Kind::result:
        return {control::frame_address, frame_offset(operand)};
    case Operand::Kind::function:
        return {nullptr, kFunctionWindow | (std::uint64_t{resolve_alias(module_, operand.index)} << 4U)};
    default:
        unsupported("an operand has no address");
    }
}

std::uint64_t FunctionCompiler::frame_offset(const Operand &operand) const {
    switch (operand.kind) {
    case Operand::Kind::own_variable: {
        const ptx::Variable &variable = function_.variables[operand.index];
        return (variable.space == Space::param ? call_parameters_ : 0) + variable.offset + operand.value;
    }
    case Operand::Kind::parameter:
        return code_->parameters + function_.parameters[operand.index].offset + operand.value;
    default:
        return code_->results + function_.results[operand.index].offset + operand.value;
    }
}

Ref FunctionCompiler::source(const Operand &operand) { return source(operand, operand.type); }

Ref FunctionCompiler::source(const Operand &operand, Type type) {
    const unsigned width = row_width(type);
    switch (operand.kind) {
    case Operand::Kind::reg: {
        const Ref row = register_row(operand.index);
        const unsigned own = row_width(function_.registers[operand.index]);
        if (own == width) {
            if (!operand.negated || width != 0) // a negated number is the instruction's own
                return row;
            const Ref inverse = temporary(0);
            add_move(predicate_not(), inverse, row);
            return inverse;
        }
        if ((own != 4 && own != 8) || (width != 4 && width != 8))
            unsupported("a register does not fit its operand");
        const Ref fitted = temporary(width);
        add_move(own == 8               ? handlers().narrow
                 : ptx::is_signed(type) ? handlers().widen_signed
                                        : handlers().widen_unsigned,
                 fitted, row);
        return fitted;
    }
    case Operand::Kind::immediate:
        return constant(width, operand.value);
    case Operand::Kind::special: {
        const Ref row = temporary(width);
        add({.run = control::special,
             .o = {row, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent},
             .immediate = width,
             .mode = static_cast<std::uint8_t>(operand.index)});
        return row;
    }
    case Operand::Kind::variable:
    case Operand::Kind::own_variable:
    case Operand::Kind::parameter:
    case Operand::Kind::result:
    case Operand::Kind::function: {
        const Address address = address_of(operand);
        if (address.made_by == nullptr)
            return constant(width, address.value);
        const Ref row = temporary(width);
        add({.run = address.made_by,
             .o = {row, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent},
             .immediate = address.value,
             .mode = static_cast<std::uint8_t>(width)});
        return row;
    }
    default:
        unsupported("an operand cannot be read");
    }
}

Handler FunctionCompiler::integer_handler(Opcode opcode, Type type) {
    Instruction instruction;
    instruction.opcode = opcode;
    instruction.types[0] = type;
    const Handler handler = handlers().integer(instruction, Op{});
    return handler != nullptr ? handler : handlers().logic(instruction, Op{});
}

FunctionCompiler::Destination FunctionCompiler::destination(const Operand &operand) {
    const unsigned width = row_width(operand.type);
    if (operand.kind == Operand::Kind::none)
        return {temporary(width), kAbsent, false};
    if (operand.kind != Operand::Kind::reg)
        unsupported("the destination is not a register");
    const Ref row = register_row(operand.index);
    const unsigned own = row_width(function_.registers[operand.index]);
    if (own == width)
        return {row, kAbsent, false};
    if (own != 8 || width != 4)
        unsupported("the destination does not fit its register");
    return {temporary(4), row, ptx::is_signed(operand.type)};
}

void FunctionCompiler::finish(const Destination &destination) {
    if (destination.wide == kAbsent)
        return;
    const Handler widen = destination.is_signed ? handlers().widen_signed : handlers().widen_unsigned;
    add_guarded(
        {.run = widen, .o = {destination.wide, destination.written, kAbsent, kAbsent, kAbsent, kAbsent}});
}

void FunctionCompiler::set_address(Op &op, const Operand &address, Space space, std::uint64_t bytes) {
    op.immediate = address.value;
    op.base = Base::none;
    switch (space) {
    case Space::global:
    case Space::constant:
        op.place = Place::global;
        break;
    case Space::shared:
    case Space::shared_cta:
    case Space::shared_cluster:
        op.place = Place::shared;
        break;
    case Space::local:
        op.place = Place::local;
        break;
    case Space::param:
    case Space::param_entry:
    case Space::param_func: // by a register: where mov got it from
        op.place =
            function_.kernel && address.kind != Operand::Kind::own_variable ? Place::global : Place::local;
        break;
    default:
        op.place = Place::generic;
        break;
    }
    switch (address.kind) {
    case Operand::Kind::reg: {
        const unsigned width = row_width(function_.registers[address.index]);
        if (width != 4 && width != 8)
            unsupported("the address is in no register of 32 or 64 bits");
        op.base = width == 4 ? Base::row32 : Base::row64;
        op.o[5] = register_row(address.index);
        return;
    }
    case Operand::Kind::immediate:
        return;
    case Operand::Kind::parameter:
        if (function_.kernel) {
            const ptx::Parameter &parameter = function_.parameters[address.index];
            op.immediate = parameter.offset + address.value;
            if (op.immediate > function_.parameter_size || bytes > function_.parameter_size - op.immediate)
                unsupported(fmt::format("it reads behind the parameters of {}", quote(function_.name)));
            op.place = Place::parameter;
            return;
        }
        break;
    default:
        break;
    }
    const Address known = address_of(address);
    op.immediate = known.value;
    if (known.made_by != nullptr)
        op.place = Place::frame;
    else if (op.place == Place::generic && is_shared(address))
        op.place = Place::shared;
}

bool FunctionCompiler::is_shared(const Operand &operand) const {
    const ptx::Variable &variable = operand.kind == Operand::Kind::variable
                                        ? module_.variables[operand.index]
                                        : function_.variables[operand.index];
    return variable.space == Space::shared;
}

} // namespace singularity::softgpu::engine
