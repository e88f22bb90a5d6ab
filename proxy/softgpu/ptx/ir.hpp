// SPDX-License-Identifier: GPL-2.0-or-later
// PTX as an engine wants it: names are gone (slots and indices), modifiers are enumerators, immediates are
// bits. Sizes, offsets and alignments are in bytes. Indices are into the vectors of the same Function or
// Module.
#pragma once

#include "common/error.hpp"
#include "ptx/instruction_set.hpp"
#include "ptx/words.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace singularity::ptx {

inline constexpr std::uint32_t kNone = UINT32_MAX;

// Of an operand of a video instruction: .b0, .h1, .b3210, .h02. Elements are bytes (width 8) or halves (16);
// of several the last one written is the first. Width 0: the whole register.
struct Selector {
    std::uint8_t width = 0;
    std::uint8_t count = 0;
    std::uint16_t digits = 0; // four bits each, the first element's lowest

    [[nodiscard]] unsigned digit(unsigned at) const { return digits >> (4 * at) & 15U; }
};

struct Operand {
    enum class Kind : std::uint8_t {
        none,         // an optional operand that is not there, or the sink `_`
        reg,          // index: register slot
        immediate,    // value: bits of the operand's type, the rest zero (sign-extended to 64 bits if signed)
        special,      // index: SpecialRegister
        vector,       // index: first of `count` elements in Function::operands
        variable,     // address of a variable of the module: index in Module::variables, value: added bytes
        own_variable, // the same of a variable of this function
        parameter,    // the same of a parameter; index in Function::parameters
        result,       // the same of a return value; index in Function::results
        function,     // address of Module::functions[index]
        instruction,  // branch target: index: instruction, value: its block
        branch_table, // index in Function::branch_tables
        prototype,    // index in Function::prototypes
        call_targets, // index in Function::call_targets
    };
    Kind kind = Kind::none;
    bool memory = false;  // written in brackets: the operand is the address, `value` (signed) is added to it
    bool negated = false; // !%p
    Type type = Type::none; // as which the instruction reads or writes it
    std::uint8_t count = 0;
    std::uint32_t index = kNone;
    Selector selector; // .h1: which parts of the register
    std::uint64_t value = 0;
};

struct Instruction {
    Opcode opcode = Opcode::none;
    std::uint64_t flags = 0; // flag_bit(Flag)
    std::array<Type, 4> types{};
    Rounding rounding = Rounding::none;
    Comparison comparison = Comparison::none;
    Operation operation = Operation::none;
    Mode mode = Mode::none;
    std::array<Space, 2> spaces{};
    Semantics semantics = Semantics::none;
    Scope scope = Scope::none;
    Cache cache = Cache::none;
    Hint hint = Hint::none;
    Vector vector = Vector::none;
    Shape shape = Shape::none;
    Geometry geometry = Geometry::none;
    bool guard_negated = false;
    std::uint8_t operand_count = 0;
    std::uint32_t guard = kNone; // register slot of the predicate
    std::uint32_t operands = 0;  // first in Function::operands
    std::uint32_t call = kNone;  // in Function::calls
    std::uint32_t line = 0;      // of the PTX text

    [[nodiscard]] bool has(Flag flag) const { return (flags & flag_bit(flag)) != 0; }
};

enum class Linkage : std::uint8_t { internal, external, visible, weak, common };

// A place in an initialiser where an address belongs.
struct Relocation {
    std::uint64_t offset = 0;
    std::uint8_t size = 8;
    std::uint8_t shift = 0; // 0xFF00(symbol): the byte of the address at this bit
    bool generic = false;   // generic(symbol): not the address within the space
    bool function = false;  // what `symbol` indexes: Module::functions or Module::variables
    std::uint32_t symbol = kNone;
    std::uint64_t addend = 0;
};

struct Variable {
    std::string name;
    Space space = Space::none; // global, constant, shared, local or param
    Linkage linkage = Linkage::internal;
    bool managed = false;
    bool unsized = false; // extern .shared x[]: dynamic shared memory
    Type type = Type::none;
    std::uint32_t alignment = 1;
    std::uint64_t size = 0;
    std::uint64_t offset = 0;       // local and param: in the function's frame of that space
    std::vector<std::byte> initial; // the rest of `size` is zero
    std::vector<Relocation> relocations;
    std::uint32_t line = 0;
};

struct Parameter {
    std::string name;
    Type type = Type::none;
    std::uint32_t alignment = 1;
    std::uint64_t size = 0; // 0: variadic, `.param .b8 x[]`
    std::uint64_t offset = 0;
    std::uint32_t reg = kNone; // slot, when it is declared .reg
    bool pointer = false;      // .ptr
    Space pointed_space = Space::none;
    std::uint32_t pointed_alignment = 0;
};

struct Prototype {
    std::vector<Parameter> results;
    std::vector<Parameter> parameters;
    bool noreturn = false;
};

struct Call {
    Operand callee; // function or reg
    std::vector<Operand> results;
    std::vector<Operand> arguments;
    Operand targets; // of an indirect call: prototype, call_targets or none
};

// A maximal run of instructions that is only entered at its start and only left at its end.
struct Block {
    std::uint32_t first = 0; // instructions [first, last)
    std::uint32_t last = 0;
    // Where lanes that left the block by different ways, and do not end at once, meet again: the immediate
    // post-dominator; kNone: nowhere.
    std::uint32_t reconvergence = kNone;
    bool ends = false; // some lanes may end the function here: exit, ret, trap, a call that does not return
    std::vector<std::uint32_t> successors;
};

struct Limits {
    std::array<std::uint32_t, 3> max_threads{};      // .maxntid
    std::array<std::uint32_t, 3> required_threads{}; // .reqntid
    std::array<std::uint32_t, 3> cluster{};          // .reqnctapercluster
    std::uint32_t min_blocks = 0;                    // .minnctapersm
    std::uint32_t max_registers = 0;                 // .maxnreg
    std::uint32_t max_cluster_rank = 0;              // .maxclusterrank
    bool explicit_cluster = false;
    bool blocks_are_clusters = false;
};

struct Function {
    std::string name;
    Linkage linkage = Linkage::internal;
    bool kernel = false;
    bool defined = false; // false: only declared; an engine provides vprintf, malloc, free, __assertfail ...
    bool noreturn = false;
    std::vector<Parameter> results;
    std::vector<Parameter> parameters;
    std::uint64_t parameter_size = 0; // of the buffer of a kernel's parameters
    Limits limits;
    std::vector<std::string> pragmas;

    std::vector<Type> registers; // by slot
    std::vector<Variable> variables;
    std::uint64_t local_size = 0; // frame of .local variables
    std::uint64_t param_size = 0; // frame of .param variables for calls
    std::vector<Instruction> instructions;
    std::vector<Operand> operands;
    std::vector<Call> calls;
    std::vector<std::vector<Operand>> branch_tables;      // of instruction operands
    std::vector<std::vector<std::uint32_t>> call_targets; // of functions
    std::vector<Prototype> prototypes;
    std::vector<Block> blocks;

    // The first thing in the body that is not known; then the function cannot be launched or called.
    std::optional<Error> unsupported;
    std::uint32_t line = 0;
};

struct Alias {
    std::uint32_t function = kNone;
    std::uint32_t target = kNone;
};

struct Module {
    std::uint32_t version_major = 0;
    std::uint32_t version_minor = 0;
    std::string target;   // "sm_90a"
    std::uint32_t sm = 0; // 90
    std::uint32_t address_size = 64;
    std::vector<Variable> variables;
    std::vector<Function> functions;
    std::vector<Alias> aliases;
    // The first unknown directive outside of functions: nothing of the module that needs it can be known to
    // work.
    std::optional<Error> unsupported;

    [[nodiscard]] const Function *function(std::string_view name) const;
    [[nodiscard]] const Variable *variable(std::string_view name) const;
};

} // namespace singularity::ptx
