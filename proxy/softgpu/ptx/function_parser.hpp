// SPDX-License-Identifier: GPL-2.0-or-later
// The body of one kernel or device function.
#pragma once

#include "ptx/declarations.hpp"
#include "ptx/ir.hpp"
#include "ptx/token_stream.hpp"

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace singularity::ptx {

// What a name of the module stands for.
struct ModuleName {
    bool function = false;
    std::uint32_t index = kNone;
};
using ModuleNames = std::unordered_map<std::string_view, ModuleName>;

// Kept over a module's functions: the same few hundred spellings make up all of its instructions.
using InstructionCache = std::unordered_map<std::string, Lookup>;

class FunctionParser {
  public:
    FunctionParser(TokenStream &tokens, const ModuleNames &names, InstructionCache &cache, Function &function)
        : tokens_(tokens), names_(names), cache_(cache), function_(function) {}

    // From `{` to the `}` that closes it.
    void parse_body();

  private:
    // %r<10> is entered as "%r" with a count; a single register has the count kNone.
    struct RegisterName {
        std::uint32_t first = 0;
        std::uint32_t count = kNone;
    };
    struct Scope {
        std::unordered_map<std::string_view, RegisterName> registers;
        std::unordered_map<std::string_view, std::uint32_t> variables;
        std::unordered_map<std::string_view, Operand> labels;
        std::size_t first_pending = 0;
    };
    // A label that was used; labels may follow their use.
    struct PendingLabel {
        enum class Where : std::uint8_t { operand, table, call };
        Where where = Where::operand;
        std::uint32_t outer = 0; // operand, table or call
        std::uint32_t inner = 0; // element of the table
        std::string_view name;
        std::uint32_t line = 0;
    };
    struct Raw {
        Operand operand;
        Constant constant;
        std::string_view unresolved;
        bool after_bar = false;
        std::vector<Raw> elements;
        std::vector<Raw> inside; // behind the address, in its brackets
    };

    void parse_statement();
    void parse_directive();
    void parse_registers();
    void parse_label(const Token &name);
    void parse_branch_targets(const Token &label);
    void parse_call_targets(const Token &label);
    void parse_prototype(const Token &label);
    void parse_instruction();
    void parse_call(Instruction &instruction);
    std::vector<Operand> parse_call_list();
    Operand parse_call_operand();
    void add_label(const Token &name, Operand operand);
    void add_pending(PendingLabel::Where where, std::uint32_t outer, std::uint32_t inner,
                     std::string_view name, std::uint32_t line);
    void declare_register(std::string_view name, Type type);
    std::uint32_t new_slot(Type type);
    void open_scope();
    void close_scope();
    void unsupported(std::uint32_t line, std::string why);

    const Lookup &look_up(const std::string &text);
    std::vector<Raw> parse_operands();
    Raw parse_operand();
    Raw parse_address();
    Raw parse_name();
    bool try_form(const DecodedForm &form, std::vector<Raw> &raws, Instruction &instruction);
    [[nodiscard]] bool fits(const OperandForm &form, const Raw &raw, const DecodedForm &decoded) const;
    void store(const OperandForm &form, const Raw &raw, const DecodedForm &decoded, std::uint32_t at);

    [[nodiscard]] std::uint32_t find_register(std::string_view name) const;
    bool find_symbol(std::string_view name, Operand &operand) const;

    TokenStream &tokens_;
    const ModuleNames &names_;
    InstructionCache &cache_;
    Function &function_;
    std::vector<Scope> scopes_;
    std::vector<PendingLabel> pending_;
    std::string text_;
};

} // namespace singularity::ptx
