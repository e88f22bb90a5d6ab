// SPDX-License-Identifier: GPL-2.0-or-later
#include "engine/program.hpp"

#include "common/text.hpp"
#include "engine/context.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/core.h>

namespace singularity::softgpu {

namespace engine {

namespace {

using ptx::Instruction;
using ptx::kNone;
using ptx::Module;
using ptx::Opcode;
using ptx::Operand;
using ptx::Operation;
using ptx::Space;
using ptx::Type;

constexpr std::uint64_t align(std::uint64_t value, std::uint64_t to) {
    return to <= 1 ? value : (value + to - 1) / to * to;
}

template <class Visit>
void for_each_operand(const ptx::Function &function, Visit visit) {
    std::ranges::for_each(function.operands, visit);
    for (const ptx::Call &call : function.calls) {
        std::ranges::for_each(call.arguments, visit);
        std::ranges::for_each(call.results, visit);
    }
}

// Functions whose address is taken somewhere: what an indirect call may reach.
std::vector<std::uint32_t> addressed_functions(const Module &module) {
    std::vector<bool> taken(module.functions.size(), false);
    for (const ptx::Function &function : module.functions)
        for_each_operand(function, [&](const Operand &operand) {
            if (operand.kind == Operand::Kind::function)
                taken[resolve_alias(module, operand.index)] = true;
        });
    for (const ptx::Variable &variable : module.variables)
        for (const ptx::Relocation &relocation : variable.relocations)
            if (relocation.function && relocation.symbol != kNone)
                taken[resolve_alias(module, relocation.symbol)] = true;
    std::vector<std::uint32_t> list;
    for (std::uint32_t i = 0; i < taken.size(); ++i)
        if (taken[i] && module.functions[i].defined && !module.functions[i].kernel)
            list.push_back(i);
    return list;
}

// Whether another block can see the order in which blocks execute the instruction.
class OrderCheck {
  public:
    explicit OrderCheck(const ptx::Function &function)
        : function_(function), uses_(function.registers.size(), 0) {
        for_each_operand(function, [&](const Operand &operand) {
            if (operand.kind == Operand::Kind::reg)
                ++uses_[operand.index];
        });
    }

    [[nodiscard]] bool ordered(const Instruction &instruction) const {
        switch (instruction.opcode) {
        case Opcode::atom:
        case Opcode::red:
            return !within_block(instruction) && !commutes(instruction);
        case Opcode::ld:
        case Opcode::st:
            return instruction.semantics != ptx::Semantics::none &&
                   instruction.semantics != ptx::Semantics::weak && !within_block(instruction);
        default:
            return false;
        }
    }

  private:
    static bool within_block(const Instruction &instruction) {
        switch (instruction.spaces[0]) {
        case Space::shared:
        case Space::shared_cta:
        case Space::local:
        case Space::param:
        case Space::param_func:
        case Space::param_entry:
            return true;
        default:
            return false;
        }
    }

    // The same in any order: what is added up is an integer, and nobody looks at what was there before.
    [[nodiscard]] bool commutes(const Instruction &instruction) const {
        switch (instruction.operation) {
        case Operation::and_:
        case Operation::or_:
        case Operation::xor_:
        case Operation::add:
        case Operation::min:
        case Operation::max:
            break;
        default:
            return false;
        }
        if (ptx::is_float(instruction.types[0]))
            return false;
        if (instruction.opcode == Opcode::red)
            return true;
        const Operand &result = function_.operands[instruction.operands];
        return result.kind == Operand::Kind::none ||
               (result.kind == Operand::Kind::reg && uses_[result.index] == 1);
    }

    const ptx::Function &function_;
    std::vector<std::uint32_t> uses_;
};

} // namespace

LoadedProgram::LoadedProgram(std::shared_ptr<const Module> module, std::vector<std::uint64_t> addresses)
    : module_(std::move(module)), addresses_(std::move(addresses)),
      addressed_(addressed_functions(*module_)) {
    for (std::uint32_t i = 0; i < module_->functions.size(); ++i)
        if (module_->functions[i].kernel && module_->functions[i].defined)
            kernels_.push_back(i);
    compiled_.resize(module_->functions.size());
}

std::vector<std::byte> LoadedProgram::initial_content(std::uint32_t index) const {
    const ptx::Variable &variable = module_->variables.at(index);
    std::vector<std::byte> bytes(variable.size);
    std::copy_n(variable.initial.begin(), std::min(variable.initial.size(), bytes.size()), bytes.begin());
    for (const ptx::Relocation &relocation : variable.relocations) {
        if (relocation.symbol == kNone || relocation.offset + relocation.size > bytes.size())
            continue;
        std::uint64_t address = relocation.addend;
        if (relocation.function)
            address += kFunctionWindow | (std::uint64_t{resolve_alias(*module_, relocation.symbol)} << 4U);
        else
            address += addresses_[relocation.symbol];
        address >>= relocation.shift;
        std::memcpy(bytes.data() + relocation.offset, &address,
                    std::min<std::size_t>(relocation.size, sizeof(address)));
    }
    return bytes;
}

// Everything that the kernel can reach, the kernel first.
std::vector<std::uint32_t> LoadedProgram::reachable(std::uint32_t kernel) const {
    std::vector<std::uint32_t> list{kernel};
    std::vector<bool> seen(module_->functions.size(), false);
    seen[kernel] = true;
    bool indirect = false;
    const auto add = [&](std::uint32_t function) {
        function = resolve_alias(*module_, function);
        if (!seen[function]) {
            seen[function] = true;
            list.push_back(function);
        }
    };
    for (std::size_t i = 0; i < list.size();
         ++i) // NOLINT(modernize-loop-convert): add() makes the list longer
        for (const ptx::Call &call : module_->functions[list[i]].calls) {
            if (call.callee.kind == Operand::Kind::function) {
                add(call.callee.index);
            } else if (!std::exchange(indirect, true)) {
                std::ranges::for_each(addressed_, add);
            }
        }
    return list;
}

// Shared variables of everything reachable, in the order in which they are met.
Layout LoadedProgram::lay_out(const std::vector<std::uint32_t> &functions, std::uint64_t &end) const {
    Layout layout;
    layout.module = module_.get();
    layout.addresses = &addresses_;
    layout.module_shared.resize(module_->variables.size());
    layout.own_shared.resize(module_->functions.size());
    end = 0;
    const auto place = [&](const ptx::Variable &variable) {
        end = align(end, variable.alignment);
        return std::exchange(end, end + variable.size);
    };
    std::vector<bool> used(module_->variables.size(), false);
    for (const std::uint32_t index : functions) {
        const ptx::Function &function = module_->functions[index];
        for (const ptx::Variable &variable : function.variables)
            layout.own_shared[index].push_back(
                variable.space == Space::shared && !variable.unsized ? place(variable) : 0);
        for_each_operand(function, [&](const Operand &operand) {
            if (operand.kind != Operand::Kind::variable || used[operand.index])
                return;
            used[operand.index] = true;
            const ptx::Variable &variable = module_->variables[operand.index];
            if (variable.space == Space::shared && !variable.unsized)
                layout.module_shared[operand.index] = place(variable);
        });
    }
    // extern .shared x[]: all at the start of dynamic shared memory.
    const std::uint64_t dynamic = align(end, 16);
    for (std::size_t i = 0; i < module_->variables.size(); ++i)
        if (module_->variables[i].space == Space::shared && module_->variables[i].unsized)
            layout.module_shared[i] = dynamic;
    return layout;
}

std::unique_ptr<Kernel> LoadedProgram::compile(std::uint32_t index) const {
    auto kernel = std::make_unique<Kernel>();
    kernel->index = index;
    kernel->codes.resize(module_->functions.size());
    const std::vector<std::uint32_t> functions = reachable(index);
    const Layout layout = lay_out(functions, kernel->static_shared);
    for (std::size_t i = 0; i < module_->variables.size(); ++i)
        if (module_->variables[i].space == Space::constant)
            kernel->constants.push_back({addresses_[i], addresses_[i] + module_->variables[i].size, false});
    for (const std::uint32_t each : functions) {
        const ptx::Function &function = module_->functions[each];
        if (!function.defined) {
            if (is_built_in(function)) {
                kernel->independent &= function.name != "malloc" && function.name != "free";
                continue;
            }
            kernel->unsupported = fmt::format("function {} is not defined", quote(function.name));
            return kernel;
        }
        auto code = compile_function(layout, each);
        if (!code) {
            kernel->unsupported = code.error().message();
            return kernel;
        }
        kernel->codes[each] = std::move(*code);
        const OrderCheck check(function);
        for (const Instruction &instruction : function.instructions)
            kernel->independent &= !check.ordered(instruction);
        for_each_operand(function, [&](const Operand &operand) {
            if (operand.kind == Operand::Kind::special &&
                (static_cast<ptx::SpecialRegister>(operand.index) == ptx::SpecialRegister::envreg1 ||
                 static_cast<ptx::SpecialRegister>(operand.index) == ptx::SpecialRegister::envreg2))
                kernel->grid_barrier = true;
        });
    }
    kernel->entry = kernel->codes[index].get();
    return kernel;
}

const Kernel &LoadedProgram::kernel(std::uint32_t function) {
    const std::scoped_lock guard(lock_);
    auto &known = compiled_.at(function);
    if (known == nullptr)
        known = compile(function);
    return *known;
}

KernelInfo LoadedProgram::info(std::uint32_t index) {
    const ptx::Function &function = module_->functions.at(index);
    const Kernel &compiled = kernel(index);
    KernelInfo info;
    info.name = function.name;
    info.parameters = function.parameters;
    info.parameter_size = function.parameter_size;
    info.static_shared = compiled.static_shared;
    for (const ptx::Variable &variable : module_->variables)
        if (variable.space == Space::constant)
            info.constant += variable.size;
    info.local = function.local_size;
    const auto product = [](const std::array<std::uint32_t, 3> &sizes) {
        return std::uint64_t{sizes[0]} * std::max(sizes[1], 1U) * std::max(sizes[2], 1U);
    };
    std::uint64_t threads = product(function.limits.max_threads);
    if (threads == 0)
        threads = product(function.limits.required_threads);
    info.max_threads =
        threads == 0 ? 1024 : static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, 1024));
    info.required_threads = function.limits.required_threads;
    info.cluster = function.limits.cluster;
    // PTX has as many registers as it likes; a real compiler would get along with about a third of them. A
    // block of the largest size must fit an SM's 65536, of which each warp is given a multiple of 256.
    std::uint64_t words = 0;
    for (const Type type : function.registers)
        words += type == Type::pred ? 0 : (ptx::type_size(type) + 3) / 4;
    const std::uint64_t warps = (std::uint64_t{info.max_threads} + kLanes - 1) / kLanes;
    const std::uint64_t most = std::min<std::uint64_t>(255, 65536 / warps / 256 * 256 / kLanes);
    info.registers = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(words / 3 + 10, 16, most));
    if (function.limits.max_registers != 0)
        info.registers = std::min(info.registers, function.limits.max_registers);
    info.uses_grid_barrier = compiled.grid_barrier;
    info.unsupported = compiled.unsupported;
    return info;
}

} // namespace engine

Expected<std::shared_ptr<Program>> Program::load(std::shared_ptr<const ptx::Module> module,
                                                 std::vector<std::uint64_t> variable_addresses) {
    if (module == nullptr)
        return failure("load", "a module", "there is none");
    if (variable_addresses.size() != module->variables.size())
        return failure("load", "a module",
                       fmt::format("{} addresses for {} variables", variable_addresses.size(),
                                   module->variables.size()));
    return std::make_shared<engine::LoadedProgram>(std::move(module), std::move(variable_addresses));
}

} // namespace singularity::softgpu
