// SPDX-License-Identifier: GPL-2.0-or-later
// A function's way into code: instruction by instruction.
#include "engine/compile.hpp"

#include "common/text.hpp"
#include "engine/function_compiler.hpp"
#include "engine/native.hpp"
#include "engine/spelling.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace singularity::softgpu::engine {

namespace {

// Lanes that execute these leave the path of the others, or wait: a guard becomes a branch around them.
bool needs_own_path(const Instruction &instruction) {
    switch (instruction.opcode) {
    case Opcode::call:
    case Opcode::ret:
    case Opcode::exit:
    case Opcode::trap:
    case Opcode::brkpt:
    case Opcode::bar:
    case Opcode::barrier:
    case Opcode::shfl:
    case Opcode::vote:
    case Opcode::match:
    case Opcode::redux:
    case Opcode::elect:
    case Opcode::activemask:
    case Opcode::mma:
    case Opcode::wmma:
    case Opcode::ldmatrix:
    case Opcode::stmatrix:
    case Opcode::movmatrix:
    case Opcode::mbarrier:
    case Opcode::alloca:
        return true;
    default:
        return false;
    }
}

} // namespace

FunctionCompiler::FunctionCompiler(const Layout &layout, std::uint32_t index)
    : layout_(layout), module_(*layout.module), function_(module_.functions[index]),
      code_(std::make_unique<Code>()), registers_(function_.registers.size(), kAbsent),
      uses_(function_.registers.size(), 0) {
    code_->function = &function_;
    code_->index = index;
}

std::unique_ptr<Code> FunctionCompiler::compile() {
    if (function_.unsupported)
        throw Unsupported{*function_.unsupported};
    for (const auto *list : {&function_.parameters, &function_.results})
        for (const ptx::Parameter &parameter : *list)
            if (parameter.reg != kNone)
                throw Unsupported{{"run", quote(function_.name), "its parameters are in registers", 0}};
    place_frame();
    count_uses();
    carry_ = new_predicate();
    std::vector<bool> meeting(function_.blocks.size() + 1, false);
    for (const ptx::Block &block : function_.blocks)
        if (block.reconvergence != kNone && block.successors.size() + (block.ends ? 1 : 0) > 1)
            meeting[block.reconvergence] = true;
    for (std::uint32_t b = 0; b < function_.blocks.size(); ++b) {
        const ptx::Block &block = function_.blocks[b];
        block_starts_.push_back(static_cast<std::uint32_t>(code_->ops.size()));
        if (meeting[b])
            add({.run = control::meet});
        for (at_ = block.first; at_ < block.last; ++at_)
            instruction(function_.instructions[at_], block);
    }
    at_ = function_.instructions.empty() ? 0 : static_cast<std::uint32_t>(function_.instructions.size() - 1);
    add({.run = control::leave_function}); // falling off the end
    for (const auto &[op, block] : targets_)
        code_->ops[op].target = block_starts_.at(block);
    for (const auto &[op, block] : meetings_)
        code_->ops[op].meeting = block == kNone ? kNone : block_starts_.at(block);
    for (const auto &[at, block] : table_targets_)
        code_->extra[at] = block_starts_.at(block);
    finish_rows();
    native_sites(*code_);
    return std::move(code_);
}

void FunctionCompiler::unsupported(std::string why) const {
    const std::uint32_t line = at_ < function_.instructions.size() ? function_.instructions[at_].line : 0;
    throw Unsupported{{"run", fmt::format("{} of {}, PTX line {}", spelled(), quote(function_.name), line),
                       std::move(why), 0}};
}

std::string FunctionCompiler::spelled() const {
    return at_ < function_.instructions.size() ? spell(function_.instructions[at_]) : std::string("the code");
}

OpKind FunctionCompiler::kind_of(const Op &op) const {
    struct Known {
        Handler run;
        OpKind kind;
    };
    const HandlerSet &set = handlers();
    const Known known[] = {{control::guard, OpKind::guard},
                           {control::branch, OpKind::branch},
                           {control::branch_if, OpKind::branch_if},
                           {control::branch_table, OpKind::branch_table},
                           {control::meet, OpKind::meet},
                           {control::nothing, OpKind::nothing},
                           {control::special, OpKind::special},
                           {control::frame_address, OpKind::frame_address},
                           {control::parameter_address, OpKind::parameter_address},
                           {control::leave_function, OpKind::end},
                           {control::exit_lanes, OpKind::end},
                           {control::trap, OpKind::end},
                           {set.widen_unsigned, OpKind::widen_unsigned},
                           {set.widen_signed, OpKind::widen_signed},
                           {set.narrow, OpKind::narrow},
                           {predicate_not(), OpKind::invert}};
    const auto *found = std::ranges::find(known, op.run, &Known::run);
    return found != std::ranges::end(known) ? found->kind : kind_;
}

Op &FunctionCompiler::add(Op op) {
    op.instruction = at_;
    code_->kinds.push_back(kind_of(op));
    return code_->ops.emplace_back(op);
}

void FunctionCompiler::add_guarded(const Op &op) {
    const Instruction &instruction = function_.instructions[at_];
    if (instruction.guard != kNone && !needs_own_path(instruction))
        add({.run = control::guard,
             .o = {register_row(instruction.guard), kAbsent, kAbsent, kAbsent, kAbsent, kAbsent},
             .mode = instruction.guard_negated ? std::uint8_t{1} : std::uint8_t{0}});
    add(op);
}

void FunctionCompiler::emit(const Op &op) {
    if (op.run == nullptr)
        unsupported("the engine does not know it");
    add_guarded(op);
}

void FunctionCompiler::instruction(const Instruction &instruction, const ptx::Block &block) {
    for (auto &[width, free] : temporaries_)
        free.used = 0;
    const bool skipped = instruction.guard != kNone && needs_own_path(instruction);
    std::uint32_t skip = 0;
    if (skipped) {
        skip = size();
        Op op{.run = control::branch_if};
        op.o[0] = register_row(instruction.guard);
        op.mode = instruction.guard_negated ? 0 : 1;
        add(op);
    }
    body(instruction, block);
    kind_ = OpKind::other;
    if (skipped) {
        code_->ops[skip].target = size();
        code_->ops[skip].meeting = size();
        add({.run = control::meet});
    }
}

void FunctionCompiler::body(const Instruction &instruction, const ptx::Block &block) {
    switch (instruction.opcode) {
    case Opcode::bra:
    case Opcode::brx:
        branch(instruction, block);
        return;
    case Opcode::call:
        call(instruction);
        return;
    case Opcode::ret:
        add({.run = control::leave_function});
        return;
    case Opcode::exit:
        add({.run = control::exit_lanes});
        return;
    case Opcode::trap:
        add({.run = control::trap});
        return;
    case Opcode::brkpt:
        add({.run = control::breakpoint});
        return;
    case Opcode::nanosleep:
        add({.run = control::yield_turn});
        return;
    case Opcode::membar:
    case Opcode::fence:
        add({.run = control::fence});
        return;
    case Opcode::pmevent:
    case Opcode::griddepcontrol:
    case Opcode::prefetch:
    case Opcode::prefetchu:
    case Opcode::applypriority:
    case Opcode::discard: // hints: leaving memory as it is is one of the things they allow
        return;
    case Opcode::ld:
    case Opcode::ldu:
        load(instruction);
        return;
    case Opcode::st:
        store(instruction);
        return;
    case Opcode::atom:
    case Opcode::red:
        atomic(instruction);
        return;
    case Opcode::bar:
    case Opcode::barrier:
        barrier(instruction);
        return;
    case Opcode::shfl:
    case Opcode::vote:
    case Opcode::match:
    case Opcode::redux:
    case Opcode::elect:
    case Opcode::activemask:
        collective_instruction(instruction);
        return;
    case Opcode::mma:
    case Opcode::wmma:
    case Opcode::ldmatrix:
    case Opcode::stmatrix:
    case Opcode::movmatrix:
        matrix(instruction);
        return;
    case Opcode::cp:
    case Opcode::mbarrier:
        asynchronous(instruction);
        return;
    case Opcode::tex:
    case Opcode::tld4:
    case Opcode::txq:
    case Opcode::suq:
    case Opcode::suld:
    case Opcode::sust:
    case Opcode::sured:
        texture(instruction);
        return;
    case Opcode::cvta:
        convert_address(instruction);
        return;
    case Opcode::isspacep: {
        Op op;
        op.o[0] = destination(operand(instruction, 0)).written;
        op.o[1] = source(operand(instruction, 1));
        op.mode = static_cast<std::uint8_t>(instruction.spaces[0]);
        op.run = control::is_space;
        emit(op);
        return;
    }
    case Opcode::mapa: { // a cluster is one block: rank 0 is the block itself
        Op op;
        const Destination into = destination(operand(instruction, 0));
        op.o[0] = into.written;
        op.o[1] = source(operand(instruction, 1));
        op.run = integer_handler(Opcode::mov, instruction.types[0]);
        kind_ = OpKind::copy;
        emit(op);
        finish(into);
        return;
    }
    case Opcode::getctarank:
        zero(instruction);
        return;
    case Opcode::createpolicy: // a device without caches has one policy
        zero(instruction);
        return;
    case Opcode::alloca:
    case Opcode::stacksave:
    case Opcode::stackrestore:
        stack(instruction);
        return;
    case Opcode::mov:
        if (!move(instruction))
            plain(instruction);
        return;
    default:
        plain(instruction);
        return;
    }
}

void FunctionCompiler::zero(const Instruction &instruction) {
    Op op;
    const Operand &zeroed = operand(instruction, 0);
    const Destination into = destination(zeroed);
    op.o[0] = into.written;
    op.o[1] = constant(row_width(zeroed.type), 0);
    op.run = integer_handler(Opcode::mov, zeroed.type);
    kind_ = OpKind::copy;
    emit(op);
    finish(into);
}

std::uint32_t resolve_alias(const ptx::Module &module, std::uint32_t function) {
    for (std::size_t steps = 0; steps <= module.aliases.size(); ++steps) {
        const auto alias = std::ranges::find(module.aliases, function, &ptx::Alias::function);
        if (alias == module.aliases.end())
            break;
        function = alias->target;
    }
    return function;
}

Expected<std::unique_ptr<Code>> compile_function(const Layout &layout, std::uint32_t index) {
    try {
        return FunctionCompiler(layout, index).compile();
    } catch (Unsupported &problem) {
        return std::unexpected(std::move(problem.error));
    }
}

} // namespace singularity::softgpu::engine
