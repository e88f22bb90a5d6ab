// SPDX-License-Identifier: GPL-2.0-or-later
// Branches and calls.
#include "common/text.hpp"
#include "engine/compile.hpp"
#include "engine/function_compiler.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace singularity::softgpu::engine {

namespace {

struct BuiltIn {
    std::string_view name;
    Handler handler;
};
constexpr BuiltIn kBuiltIns[] = {{"vprintf", control::print},
                                 {"__assertfail", control::assertion},
                                 {"malloc", control::allocate},
                                 {"free", control::release},
                                 {"cudaGraphSetConditional", control::set_conditional}};

} // namespace

void FunctionCompiler::branch(const Instruction &instruction, const ptx::Block &block) {
    if (instruction.opcode == Opcode::brx) {
        const Operand &table = operand(instruction, 1);
        if (table.kind != Operand::Kind::branch_table)
            unsupported("it has no table of targets");
        const auto &targets = function_.branch_tables[table.index];
        Op op;
        op.run = control::branch_table;
        op.o[0] = source(operand(instruction, 0));
        op.extra = static_cast<std::uint32_t>(code_->extra.size());
        op.immediate = targets.size();
        for (const Operand &target : targets) {
            table_targets_.emplace_back(static_cast<std::uint32_t>(code_->extra.size()),
                                        static_cast<std::uint32_t>(target.value));
            code_->extra.push_back(0);
        }
        if (instruction.guard != kNone) {
            // The lanes that the guard stops go on after it, which is the next block.
            Op skip{.run = control::branch_if};
            skip.o[0] = register_row(instruction.guard);
            skip.mode = instruction.guard_negated ? 0 : 1;
            meetings_.emplace_back(size(), block.reconvergence);
            targets_.emplace_back(size(), block_index(block) + 1);
            add(skip);
        }
        meetings_.emplace_back(size(), block.reconvergence);
        add(op);
        return;
    }
    const Operand &target = operand(instruction, 0);
    Op op;
    op.run = instruction.guard == kNone ? control::branch : control::branch_if;
    if (instruction.guard != kNone) {
        op.o[0] = register_row(instruction.guard);
        op.mode = instruction.guard_negated ? 1 : 0;
        meetings_.emplace_back(size(), block.reconvergence);
    }
    targets_.emplace_back(size(), static_cast<std::uint32_t>(target.value));
    add(op);
}

Argument FunctionCompiler::argument(const Operand &operand, const ptx::Parameter &parameter) {
    Argument made;
    made.size = static_cast<std::uint32_t>(parameter.size);
    if (operand.kind == Operand::Kind::own_variable &&
        function_.variables[operand.index].space == Space::param) {
        const ptx::Variable &variable = function_.variables[operand.index];
        made.size = static_cast<std::uint32_t>(std::min(variable.size, parameter.size));
        made.from = frame_offset(operand);
        return made;
    }
    if (parameter.size > 8)
        unsupported("a register cannot be passed for a parameter of this size");
    made.row = source(operand, parameter.type);
    made.wide = row_width(parameter.type) == 8;
    return made;
}

void FunctionCompiler::call(const Instruction &instruction) {
    const ptx::Call &call = function_.calls[instruction.call];
    const std::vector<ptx::Parameter> *parameters = nullptr;
    const std::vector<ptx::Parameter> *results = nullptr;
    Op op;
    op.extra = static_cast<std::uint32_t>(code_->calls.size());
    if (call.callee.kind == Operand::Kind::function) {
        const std::uint32_t index = resolve_alias(module_, call.callee.index);
        const Function &callee = module_.functions[index];
        parameters = &callee.parameters;
        results = &callee.results;
        op.target = index;
        op.run = control::call;
        if (!callee.defined) {
            const auto *known = std::ranges::find(kBuiltIns, std::string_view(callee.name), &BuiltIn::name);
            if (known == std::ranges::end(kBuiltIns))
                unsupported(fmt::format("function {} is not defined", quote(callee.name)));
            op.run = known->handler;
        }
    } else {
        op.run = control::call_indirect;
        op.o[0] = source(call.callee, Type::u64);
        if (call.targets.kind == Operand::Kind::prototype) {
            const ptx::Prototype &prototype = function_.prototypes[call.targets.index];
            parameters = &prototype.parameters;
            results = &prototype.results;
        } else if (call.targets.kind == Operand::Kind::call_targets &&
                   !function_.call_targets[call.targets.index].empty()) {
            const Function &first = module_.functions[function_.call_targets[call.targets.index].front()];
            parameters = &first.parameters;
            results = &first.results;
        } else {
            unsupported("an indirect call without a prototype");
        }
    }
    if (call.arguments.size() != parameters->size() || call.results.size() != results->size())
        unsupported("the numbers of arguments and parameters differ");
    CallSite site;
    for (std::size_t i = 0; i < parameters->size(); ++i) {
        Argument made = argument(call.arguments[i], (*parameters)[i]);
        made.to = (*parameters)[i].offset;
        site.arguments.push_back(made);
    }
    for (std::size_t i = 0; i < results->size(); ++i) {
        const Operand &result = call.results[i];
        Argument made;
        made.size = static_cast<std::uint32_t>((*results)[i].size);
        made.from = (*results)[i].offset;
        if (result.kind == Operand::Kind::own_variable) {
            made.size = static_cast<std::uint32_t>(
                std::min<std::uint64_t>(made.size, function_.variables[result.index].size));
            made.to = frame_offset(result);
        } else if (result.kind == Operand::Kind::reg && made.size <= 8) {
            made.row = register_row(result.index);
            made.wide = row_width(function_.registers[result.index]) == 8;
        } else if (result.kind == Operand::Kind::none) {
            continue;
        } else {
            unsupported("a result cannot be put there");
        }
        site.results.push_back(made);
    }
    code_->calls.push_back(std::move(site));
    add(op);
    if (op.run == control::call_indirect) // lanes that called different functions meet here
        add({.run = control::meet});
}

bool is_built_in(const Function &function) {
    return !function.defined && std::ranges::find(kBuiltIns, std::string_view(function.name),
                                                  &BuiltIn::name) != std::ranges::end(kBuiltIns);
}

} // namespace singularity::softgpu::engine
