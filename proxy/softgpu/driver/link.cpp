// SPDX-License-Identifier: GPL-2.0-or-later
// Linking: several PTX modules become one. Names with .visible, .weak or .common linkage are one thing in all
// of them; all others stay their module's own. (PTX ISA, "Linking Directives".)
#include "driver/image.hpp"

#include <map>
#include <string_view>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

using ptx::kNone;
using ptx::Linkage;

// Where the things of one module are in the linked one.
struct Places {
    std::vector<std::uint32_t> functions;
    std::vector<std::uint32_t> variables;
};

void move_operand(ptx::Operand &operand, const Places &places) {
    if (operand.index == kNone)
        return;
    if (operand.kind == ptx::Operand::Kind::variable)
        operand.index = places.variables[operand.index];
    else if (operand.kind == ptx::Operand::Kind::function)
        operand.index = places.functions[operand.index];
}

void move_relocations(ptx::Variable &variable, const Places &places) {
    for (ptx::Relocation &relocation : variable.relocations)
        if (relocation.symbol != kNone)
            relocation.symbol =
                (relocation.function ? places.functions : places.variables)[relocation.symbol];
}

void move_function(ptx::Function &function, const Places &places) {
    for (ptx::Operand &operand : function.operands)
        move_operand(operand, places);
    for (ptx::Call &call : function.calls) {
        move_operand(call.callee, places);
        for (ptx::Operand &operand : call.results)
            move_operand(operand, places);
        for (ptx::Operand &operand : call.arguments)
            move_operand(operand, places);
        move_operand(call.targets, places);
    }
    for (auto &targets : function.call_targets)
        for (std::uint32_t &target : targets)
            if (target != kNone)
                target = places.functions[target];
    for (ptx::Variable &variable : function.variables)
        move_relocations(variable, places);
}

// Which of two things of one name stays: the stronger one. Two strong ones are an error.
enum class Strength : std::uint8_t { declared, common, weak, strong };

Strength strength(const ptx::Function &function) {
    if (!function.defined)
        return Strength::declared;
    return function.linkage == Linkage::weak ? Strength::weak : Strength::strong;
}

Strength strength(const ptx::Variable &variable) {
    switch (variable.linkage) {
    case Linkage::external:
        return Strength::declared;
    case Linkage::common:
        return Strength::common;
    case Linkage::weak:
        return Strength::weak;
    case Linkage::internal:
    case Linkage::visible:
        return Strength::strong;
    }
    return Strength::strong;
}

// A declaration of a function may leave the linkage out: it is of the one that is visible elsewhere.
bool shared(const ptx::Function &function) {
    return function.linkage != Linkage::internal || !function.defined;
}
bool shared(const ptx::Variable &variable) { return variable.linkage != Linkage::internal; }

struct Chosen {
    std::uint32_t place = 0;
    Strength strength = Strength::declared;
};

// Puts `things` into `all`, or onto what is there under the name; `replaced` are those whose content must be
// looked at with this module's places.
template <class Thing>
Expected<void> merge(std::vector<Thing> things, std::vector<Thing> &all,
                     std::map<std::string, Chosen, std::less<>> &names, std::vector<std::uint32_t> &places,
                     std::vector<std::uint32_t> &added) {
    for (Thing &thing : things) {
        const auto place = static_cast<std::uint32_t>(all.size());
        if (!shared(thing)) {
            places.push_back(place);
            added.push_back(place);
            all.push_back(std::move(thing));
            continue;
        }
        const Strength own = strength(thing);
        const auto [name, fresh] = names.try_emplace(thing.name, Chosen{place, own});
        if (fresh) {
            places.push_back(place);
            added.push_back(place);
            all.push_back(std::move(thing));
            continue;
        }
        Chosen &other = name->second;
        places.push_back(other.place);
        if (own == Strength::strong && other.strength == Strength::strong)
            return failure("link", thing.name, "it is defined in two of the modules");
        if (own > other.strength) {
            other.strength = own;
            all[other.place] = std::move(thing);
            added.push_back(other.place);
        }
    }
    return {};
}

} // namespace

Expected<ptx::Module> link(std::vector<ptx::Module> modules) {
    if (modules.size() == 1)
        return std::move(modules.front());
    ptx::Module out;
    std::map<std::string, Chosen, std::less<>> function_names;
    std::map<std::string, Chosen, std::less<>> variable_names;
    for (ptx::Module &module : modules) {
        Places places;
        std::vector<std::uint32_t> functions;
        std::vector<std::uint32_t> variables;
        if (module.sm >= out.sm) {
            out.sm = module.sm;
            out.target = module.target;
        }
        if (std::pair(module.version_major, module.version_minor) >
            std::pair(out.version_major, out.version_minor)) {
            out.version_major = module.version_major;
            out.version_minor = module.version_minor;
        }
        out.address_size = module.address_size;
        if (module.unsupported && !out.unsupported)
            out.unsupported = module.unsupported;
        if (auto merged = merge(std::move(module.functions), out.functions, function_names, places.functions,
                                functions);
            !merged)
            return propagate(merged);
        if (auto merged = merge(std::move(module.variables), out.variables, variable_names, places.variables,
                                variables);
            !merged)
            return propagate(merged);
        for (const std::uint32_t function : functions)
            move_function(out.functions[function], places);
        for (const std::uint32_t variable : variables)
            move_relocations(out.variables[variable], places);
        for (const ptx::Alias &alias : module.aliases)
            out.aliases.push_back({places.functions[alias.function], places.functions[alias.target]});
    }
    return out;
}

} // namespace singularity::softgpu::driver
