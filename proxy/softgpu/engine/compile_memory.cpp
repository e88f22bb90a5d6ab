// SPDX-License-Identifier: GPL-2.0-or-later
// Instructions that touch memory, and those that make addresses of it.
#include "engine/function_compiler.hpp"

#include <algorithm>

namespace singularity::softgpu::engine {

namespace {

bool is_ordered(const Instruction &instruction) {
    return instruction.semantics != ptx::Semantics::none && instruction.semantics != ptx::Semantics::weak;
}

} // namespace

void FunctionCompiler::load(const Instruction &instruction) {
    const Operand &to = operand(instruction, 0);
    const Type type = instruction.types[0];
    Op op;
    std::vector<Destination> destinations;
    std::vector<Ref> rows;
    const std::uint32_t count = to.kind == Operand::Kind::vector ? to.count : 1;
    for (std::uint32_t i = 0; i < count; ++i) {
        Operand element = to.kind == Operand::Kind::vector ? function_.operands[to.index + i] : to;
        element.type = type;
        destinations.push_back(destination(element));
        rows.push_back(destinations.back().written);
    }
    op.count = static_cast<std::uint8_t>(count);
    op.o[0] = rows[0];
    if (count > 1)
        op.extra = extra_rows(rows);
    set_address(op, operand(instruction, 1), instruction.spaces[0],
                std::uint64_t{ptx::type_size(type)} * count);
    op.run = handlers().load(type, op);
    if (is_ordered(instruction)) // the lane may be waiting for what another writes
        add({.run = control::yield_turn});
    kind_ = ptx::type_size(type) <= 8 ? OpKind::load : OpKind::other;
    emit(op);
    std::ranges::for_each(destinations, [&](const Destination &each) { finish(each); });
}

void FunctionCompiler::store(const Instruction &instruction) {
    const Operand &from = operand(instruction, 1);
    const Type type = instruction.types[0];
    Op op;
    std::vector<Ref> rows;
    const std::uint32_t count = from.kind == Operand::Kind::vector ? from.count : 1;
    for (std::uint32_t i = 0; i < count; ++i) {
        const Operand &element =
            from.kind == Operand::Kind::vector ? function_.operands[from.index + i] : from;
        rows.push_back(source(element, type));
    }
    op.count = static_cast<std::uint8_t>(count);
    op.o[1] = rows[0];
    if (count > 1)
        op.extra = extra_rows(rows);
    set_address(op, operand(instruction, 0), instruction.spaces[0],
                std::uint64_t{ptx::type_size(type)} * count);
    op.run = handlers().store(type, op);
    kind_ = ptx::type_size(type) <= 8 ? OpKind::store : OpKind::other;
    emit(op);
}

void FunctionCompiler::convert_address(const Instruction &instruction) {
    const Destination into = destination(operand(instruction, 0));
    const Ref from = source(operand(instruction, 1));
    const unsigned width = row_width(instruction.types[0]);
    std::uint64_t window = 0;
    switch (instruction.spaces[0]) {
    case Space::shared:
    case Space::shared_cta:
    case Space::shared_cluster:
        window = kSharedWindow;
        break;
    case Space::local:
        window = kLocalWindow;
        break;
    default: // a parameter of a function is on the lane's stack, of a kernel at an ordinary address
        if ((instruction.spaces[0] == Space::param || instruction.spaces[0] == Space::param_func) &&
            !function_.kernel)
            window = kLocalWindow;
        break;
    }
    Op op;
    op.o[0] = into.written;
    op.o[1] = from;
    if (width != 8) {
        if (window != 0)
            unsupported("generic addresses have 64 bits");
        op.run = integer_handler(Opcode::mov, Type::u32);
        kind_ = OpKind::copy;
    } else if (window == 0) {
        op.run = integer_handler(Opcode::mov, Type::u64);
        kind_ = OpKind::copy;
    } else if (instruction.has(Flag::to)) {
        op.run = integer_handler(Opcode::and_, Type::b64);
        kind_ = OpKind::mask;
        op.o[2] = constant(8, kWindowMask);
    } else {
        op.run = integer_handler(Opcode::add, Type::u64);
        kind_ = OpKind::add;
        op.o[2] = constant(8, window);
    }
    emit(op);
    finish(into);
}

void FunctionCompiler::atomic(const Instruction &instruction) {
    const bool reduction = instruction.opcode == Opcode::red;
    const std::uint32_t first = reduction ? 0 : 1; // the address
    Op op;
    std::vector<Destination> destinations;
    const Operand &value = operand(instruction, first + 1);
    const std::uint32_t count = value.kind == Operand::Kind::vector ? value.count : 1;
    op.count = static_cast<std::uint8_t>(count);
    std::vector<Ref> results;
    std::vector<Ref> values;
    for (std::uint32_t i = 0; i < count; ++i) {
        const Operand &element =
            value.kind == Operand::Kind::vector ? function_.operands[value.index + i] : value;
        values.push_back(source(element, instruction.types[0]));
        if (reduction)
            continue;
        const Operand &to = operand(instruction, 0);
        Operand result = to.kind == Operand::Kind::vector ? function_.operands[to.index + i] : to;
        result.type = instruction.types[0];
        if (result.kind == Operand::Kind::none ||
            (result.kind == Operand::Kind::reg && uses_[result.index] == 1)) {
            results.push_back(kAbsent);
            continue;
        }
        destinations.push_back(destination(result));
        results.push_back(destinations.back().written);
    }
    op.o[0] = results.empty() ? kAbsent : results[0];
    op.o[1] = values[0];
    if (instruction.operation == ptx::Operation::cas)
        op.o[2] = source(operand(instruction, first + 2), instruction.types[0]);
    if (count > 1) {
        results.resize(count, kAbsent);
        values.insert(values.end(), results.begin(), results.end());
        op.extra = extra_rows(values); // values, then results
    }
    set_address(op, operand(instruction, first), instruction.spaces[0],
                std::uint64_t{ptx::type_size(instruction.types[0])} * count);
    op.mode = instruction.has(Flag::noftz) ? 1 : 0;
    op.run = select_atomic(instruction);
    emit(op);
    std::ranges::for_each(destinations, [&](const Destination &each) { finish(each); });
}

void FunctionCompiler::asynchronous(const Instruction &instruction) {
    Op op;
    op.run = select_asynchronous(instruction);
    op.mode = static_cast<std::uint8_t>(instruction.mode);
    if (op.run == nullptr)
        unsupported("the engine does not know it");
    if (instruction.opcode == Opcode::cp && instruction.operand_count >= 3) {
        set_address(op, operand(instruction, 0), instruction.spaces[0], 4);
        Op second;
        set_address(second, operand(instruction, 1), Space::global, 4);
        // The source: its row in o[1], what is added to it as a constant row in o[2].
        op.o[1] = second.base == Base::row64 ? second.o[5] : constant(8, 0);
        if (second.base == Base::row32)
            unsupported("the source's address has 32 bits");
        op.o[2] = constant(8, second.immediate);
        const Operand &bytes = operand(instruction, 2);
        if (bytes.kind != Operand::Kind::immediate)
            unsupported("the number of bytes is not a constant");
        op.key = static_cast<std::uint16_t>(bytes.value);
        if (instruction.operand_count > 3 && operand(instruction, 3).kind != Operand::Kind::none)
            op.o[3] = source(operand(instruction, 3), Type::u32);
        emit(op);
        return;
    }
    Destination into;
    std::uint32_t values = 1;
    for (std::uint32_t i = 0; i < instruction.operand_count; ++i) {
        const Operand &each = operand(instruction, i);
        if (each.memory) {
            set_address(op, each, instruction.spaces[0], 8);
        } else if (i == 0 && instruction.opcode == Opcode::mbarrier && instruction.mode != ptx::Mode::init &&
                   instruction.mode != ptx::Mode::expect_tx && instruction.mode != ptx::Mode::complete_tx &&
                   instruction.mode != ptx::Mode::inval) {
            into = destination(each);
            op.o[0] = into.written;
        } else if (each.kind != Operand::Kind::none && values < 5) {
            op.o[values++] = instruction.has(Flag::parity) && i == 2 ? source(each, Type::u32) : source(each);
        }
    }
    op.access = static_cast<std::uint8_t>((instruction.has(Flag::parity) ? 2U : 0U) |
                                          (instruction.has(Flag::expects) ? 4U : 0U) |
                                          (instruction.has(Flag::noinc) ? 8U : 0U));
    emit(op);
    finish(into);
}

void FunctionCompiler::stack(const Instruction &instruction) {
    Op op;
    if (instruction.opcode == Opcode::stackrestore) {
        op.run = control::nothing; // what alloca took is given back when the function returns
        add(op);
        return;
    }
    const Destination into = destination(operand(instruction, 0));
    op.o[0] = into.written;
    op.mode = static_cast<std::uint8_t>(row_width(instruction.types[0]));
    if (instruction.opcode == Opcode::alloca) {
        op.run = control::allocate_stack;
        op.o[1] = source(operand(instruction, 1));
        op.immediate = 16;
        if (instruction.operand_count > 2 && operand(instruction, 2).kind == Operand::Kind::immediate)
            op.immediate = std::max<std::uint64_t>(operand(instruction, 2).value, 1);
    } else {
        op.run = control::save_stack;
    }
    add(op);
    finish(into);
}

} // namespace singularity::softgpu::engine
