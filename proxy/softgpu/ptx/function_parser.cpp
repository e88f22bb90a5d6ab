// SPDX-License-Identifier: GPL-2.0-or-later
#include "ptx/function_parser.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <charconv>
#include <ranges>
#include <utility>

#include <fmt/core.h>

namespace singularity::ptx {

namespace {

constexpr std::uint32_t kMaxRegisters = 1U << 20U;
constexpr std::size_t kMaxScopes = 64;
constexpr std::size_t kMaxTuple = 64;

std::uint32_t vector_length(Vector vector) {
    switch (vector) {
    case Vector::v2:
    case Vector::x2:
        return 2;
    case Vector::v4:
    case Vector::x4:
        return 4;
    case Vector::v8:
        return 8;
    default:
        return 1;
    }
}

// What one element of a tuple is when mov packs or unpacks it.
Type part_of(Type whole, std::size_t parts) {
    switch (type_size(whole) / std::max<std::size_t>(parts, 1)) {
    case 1:
        return Type::b8;
    case 2:
        return Type::b16;
    case 4:
        return Type::b32;
    case 8:
        return Type::b64;
    default:
        return Type::none;
    }
}

// Tuples are as long as the shape and the type say, and their registers are of other types than the elements:
// the engine compares them.
bool spreads_matrices(Opcode opcode) { return opcode == Opcode::mma || opcode == Opcode::wmma; }

// "b0", "h10", "b3210": after the dot.
std::optional<Selector> selector_of(std::string_view word) {
    if (word.size() < 2 || word.size() > 5 || (word.front() != 'b' && word.front() != 'h'))
        return std::nullopt;
    Selector found{.width = static_cast<std::uint8_t>(word.front() == 'b' ? 8 : 16),
                   .count = static_cast<std::uint8_t>(word.size() - 1)};
    for (std::size_t at = 1; at < word.size(); ++at) {
        if (word[at] < '0' || word[at] > '7')
            return std::nullopt;
        found.digits = static_cast<std::uint16_t>(found.digits << 4U | static_cast<unsigned>(word[at] - '0'));
    }
    return found;
}

// Whether an operand of the instruction may have it. A destination's of several elements is a mask, and names
// them in falling order.
bool takes(Opcode opcode, OperandForm::Role role, const Selector &selector) {
    if (is_scalar_video(opcode)) {
        const bool may = role == OperandForm::Role::source || opcode != Opcode::vmad;
        return may && selector.count == 1 && selector.digit(0) < 32U / selector.width;
    }
    const unsigned elements = video_elements(opcode);
    if (elements == 0 || selector.width != 32 / elements)
        return false;
    const bool source = role == OperandForm::Role::source;
    if (source && selector.count != elements)
        return false;
    for (unsigned at = 0; at < selector.count; ++at)
        if (selector.digit(at) >= (source ? 2 * elements : elements) ||
            (!source && at > 0 && selector.digit(at) <= selector.digit(at - 1)))
            return false;
    return true;
}

template <class Enum>
Enum field(const DecodedForm &form, Field which) {
    return static_cast<Enum>(form.fields[static_cast<std::size_t>(which)]);
}

void set_modifiers(Instruction &instruction, const DecodedForm &form) {
    instruction.opcode = form.opcode;
    instruction.flags = form.flags;
    instruction.types = form.types;
    instruction.spaces = form.spaces;
    instruction.rounding = field<Rounding>(form, Field::rounding);
    instruction.comparison = field<Comparison>(form, Field::comparison);
    instruction.operation = field<Operation>(form, Field::operation);
    instruction.mode = field<Mode>(form, Field::mode);
    instruction.semantics = field<Semantics>(form, Field::semantics);
    instruction.scope = field<Scope>(form, Field::scope);
    instruction.cache = field<Cache>(form, Field::cache);
    instruction.hint = field<Hint>(form, Field::hint);
    instruction.vector = field<Vector>(form, Field::vector);
    instruction.shape = field<Shape>(form, Field::shape);
    instruction.geometry = field<Geometry>(form, Field::geometry);
}

std::uint32_t size_of(const auto &list) { return static_cast<std::uint32_t>(list.size()); }

} // namespace

void FunctionParser::unsupported(std::uint32_t line, std::string why) {
    if (!function_.unsupported)
        function_.unsupported = error_at(line, std::move(why));
}

void FunctionParser::open_scope() {
    if (scopes_.size() == kMaxScopes)
        tokens_.complain(fmt::format("braces are nested more than {} deep", kMaxScopes));
    scopes_.emplace_back().first_pending = pending_.size();
}

// A label that the scope does not have may be one of the scope around it.
void FunctionParser::close_scope() {
    const Scope scope = std::move(scopes_.back());
    scopes_.pop_back();
    std::size_t kept = scope.first_pending;
    for (std::size_t i = scope.first_pending; i < pending_.size(); ++i) {
        const PendingLabel use = pending_[i];
        const auto found = scope.labels.find(use.name);
        if (found == scope.labels.end()) {
            if (scopes_.empty())
                throw SyntaxError{error_at(use.line, fmt::format("{} is not declared", quote(use.name)))};
            pending_[kept++] = use;
            continue;
        }
        const Operand &label = found->second;
        const bool code = label.kind == Operand::Kind::instruction;
        const bool fits =
            use.where == PendingLabel::Where::operand ? code || label.kind == Operand::Kind::branch_table
            : use.where == PendingLabel::Where::table
                ? code
                : label.kind == Operand::Kind::prototype || label.kind == Operand::Kind::call_targets;
        if (!fits)
            throw SyntaxError{error_at(use.line, fmt::format("{} cannot stand here", quote(use.name)))};
        switch (use.where) {
        case PendingLabel::Where::operand:
            function_.operands[use.outer] = label;
            break;
        case PendingLabel::Where::table:
            function_.branch_tables[use.outer][use.inner] = label;
            break;
        case PendingLabel::Where::call:
            function_.calls[use.outer].targets = label;
            break;
        }
    }
    pending_.resize(kept);
}

void FunctionParser::add_pending(PendingLabel::Where where, std::uint32_t outer, std::uint32_t inner,
                                 std::string_view name, std::uint32_t line) {
    pending_.push_back({where, outer, inner, name, line});
}

std::uint32_t FunctionParser::new_slot(Type type) {
    if (function_.registers.size() >= kMaxRegisters)
        tokens_.complain(fmt::format("more than {} registers", kMaxRegisters));
    function_.registers.push_back(type);
    return size_of(function_.registers) - 1;
}

void FunctionParser::declare_register(std::string_view name, Type type) {
    if (!scopes_.back().registers.try_emplace(name, RegisterName{new_slot(type), kNone}).second)
        tokens_.complain(fmt::format("register {} is declared twice", quote(name)));
}

void FunctionParser::parse_body() {
    open_scope();
    for (auto *list : {&function_.results, &function_.parameters})
        for (Parameter &parameter : *list)
            if (parameter.reg != kNone) {
                declare_register(parameter.name, parameter.type);
                parameter.reg = size_of(function_.registers) - 1;
            }
    tokens_.expect("{");
    while (!scopes_.empty()) {
        if (tokens_.current().kind == Token::Kind::end)
            tokens_.complain("expected '}', found the end");
        if (tokens_.accept("{"))
            open_scope();
        else if (tokens_.accept("}"))
            close_scope();
        else
            parse_statement();
    }
}

void FunctionParser::parse_statement() {
    if (tokens_.accept(";"))
        return;
    if (tokens_.current().kind == Token::Kind::word) {
        parse_directive();
        return;
    }
    if (tokens_.current().kind == Token::Kind::identifier && tokens_.peek().is(":")) {
        const Token name = tokens_.advance();
        tokens_.advance();
        parse_label(name);
        return;
    }
    parse_instruction();
}

void FunctionParser::parse_directive() {
    const Token directive = tokens_.advance();
    if (directive.is(".reg")) {
        parse_registers();
    } else if (directive.is(".local") || directive.is(".shared") || directive.is(".param")) {
        const Space space = directive.is(".local")    ? Space::local
                            : directive.is(".shared") ? Space::shared
                                                      : Space::param;
        for (DeclaredVariable &declared : parse_variables(tokens_, space, Linkage::internal)) {
            if (!declared.pending.empty() || !declared.variable.initial.empty())
                throw SyntaxError{error_at(
                    directive.line, fmt::format("{} cannot be initialised", quote(declared.variable.name)))};
            Variable &variable = declared.variable;
            if (space == Space::local)
                variable.offset = place(tokens_, function_.local_size, variable.size, variable.alignment);
            else if (space == Space::param)
                variable.offset = place(tokens_, function_.param_size, variable.size, variable.alignment);
            function_.variables.push_back(std::move(variable));
            scopes_.back().variables[declared.name] = size_of(function_.variables) - 1;
        }
    } else if (directive.is(".loc")) {
        while (tokens_.current().line == directive.line && tokens_.current().kind != Token::Kind::end)
            tokens_.advance();
    } else if (directive.is(".pragma")) {
        while (tokens_.current().kind == Token::Kind::string) {
            function_.pragmas.emplace_back(tokens_.advance().text);
            tokens_.accept(",");
        }
        tokens_.expect(";");
    } else {
        unsupported(directive.line, fmt::format("directive {} is not known", quote(directive.text)));
        tokens_.skip_statement();
    }
}

void FunctionParser::parse_registers() {
    const std::uint32_t line = tokens_.current().line;
    if (tokens_.current().is(".v2") || tokens_.current().is(".v4")) {
        unsupported(line, "vector registers are not known");
        tokens_.skip_past_semicolon();
        return;
    }
    const Type type = parse_type(tokens_);
    do {
        const std::string_view name = tokens_.expect_identifier("a register's name");
        if (!tokens_.accept("<")) {
            declare_register(name, type);
            continue;
        }
        const Token number = tokens_.current();
        std::uint32_t count = 0;
        const auto [end, problem] =
            std::from_chars(number.text.data(), number.text.data() + number.text.size(), count);
        if (number.kind != Token::Kind::number || problem != std::errc() ||
            count > kMaxRegisters - function_.registers.size())
            tokens_.complain(fmt::format("{} registers are not possible here", quote(number.text)));
        tokens_.advance();
        tokens_.expect(">");
        const std::uint32_t first = size_of(function_.registers);
        function_.registers.insert(function_.registers.end(), count, type);
        if (!scopes_.back().registers.try_emplace(name, RegisterName{first, count}).second)
            tokens_.complain(fmt::format("registers {} are declared twice", quote(name)));
    } while (tokens_.accept(","));
    tokens_.expect(";");
}

void FunctionParser::add_label(const Token &name, Operand operand) {
    if (!scopes_.back().labels.try_emplace(name.text, operand).second)
        throw SyntaxError{error_at(name.line, fmt::format("label {} is declared twice", quote(name.text)))};
}

void FunctionParser::parse_label(const Token &name) {
    if (tokens_.accept(".branchtargets"))
        parse_branch_targets(name);
    else if (tokens_.accept(".calltargets"))
        parse_call_targets(name);
    else if (tokens_.accept(".callprototype"))
        parse_prototype(name);
    else
        add_label(name, {Operand::Kind::instruction,
                         false,
                         false,
                         Type::none,
                         0,
                         size_of(function_.instructions),
                         {},
                         0});
}

void FunctionParser::parse_branch_targets(const Token &label) {
    const std::uint32_t table = size_of(function_.branch_tables);
    auto &targets = function_.branch_tables.emplace_back();
    do {
        const std::uint32_t line = tokens_.current().line;
        add_pending(PendingLabel::Where::table, table, size_of(targets), tokens_.expect_identifier("a label"),
                    line);
        targets.emplace_back();
    } while (tokens_.accept(","));
    tokens_.expect(";");
    add_label(label, {Operand::Kind::branch_table, false, false, Type::none, 0, table, {}, 0});
}

void FunctionParser::parse_call_targets(const Token &label) {
    std::vector<std::uint32_t> targets;
    do {
        const std::string_view name = tokens_.expect_identifier("a function's name");
        const auto found = names_.find(name);
        if (found == names_.end() || !found->second.function)
            tokens_.complain(fmt::format("{} is not a declared function", quote(name)));
        targets.push_back(found->second.index);
    } while (tokens_.accept(","));
    tokens_.expect(";");
    function_.call_targets.push_back(std::move(targets));
    add_label(label, {Operand::Kind::call_targets,
                      false,
                      false,
                      Type::none,
                      0,
                      size_of(function_.call_targets) - 1,
                      {},
                      0});
}

void FunctionParser::parse_prototype(const Token &label) {
    Prototype prototype;
    if (tokens_.current().is("("))
        prototype.results = parse_parameters(tokens_);
    tokens_.expect_identifier("_");
    if (tokens_.current().is("("))
        prototype.parameters = parse_parameters(tokens_);
    while (!tokens_.accept(";")) {
        prototype.noreturn |= tokens_.current().is(".noreturn");
        if (tokens_.current().kind != Token::Kind::word && tokens_.current().kind != Token::Kind::number)
            tokens_.complain(fmt::format("expected ';', found {}", quote(tokens_.current().text)));
        tokens_.advance();
    }
    function_.prototypes.push_back(std::move(prototype));
    add_label(
        label,
        {Operand::Kind::prototype, false, false, Type::none, 0, size_of(function_.prototypes) - 1, {}, 0});
}

// "%r12" as a name of its own, or as the thirteenth of %r<...>; the innermost scope wins.
std::uint32_t FunctionParser::find_register(std::string_view name) const {
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    std::uint32_t number = kNone;
    if (digits < name.size() && (name[digits] != '0' || digits + 1 == name.size()))
        std::from_chars(name.data() + digits, name.data() + name.size(), number);
    const std::string_view stem = name.substr(0, digits);
    for (const auto &scope : scopes_ | std::views::reverse) {
        if (scope.registers.empty())
            continue;
        const auto whole = scope.registers.find(name);
        if (whole != scope.registers.end() && whole->second.count == kNone)
            return whole->second.first;
        if (number == kNone)
            continue;
        const auto row = scope.registers.find(stem);
        if (row != scope.registers.end() && row->second.count != kNone && number < row->second.count)
            return row->second.first + number;
    }
    return kNone;
}

bool FunctionParser::find_symbol(std::string_view name, Operand &operand) const {
    for (const auto &scope : scopes_ | std::views::reverse)
        if (const auto found = scope.variables.find(name); found != scope.variables.end()) {
            operand.kind = Operand::Kind::own_variable;
            operand.index = found->second;
            return true;
        }
    for (const auto &[list, kind] : {std::pair(&function_.parameters, Operand::Kind::parameter),
                                     std::pair(&function_.results, Operand::Kind::result)})
        if (const auto found = std::ranges::find(*list, name, &Parameter::name); found != list->end()) {
            operand.kind = kind;
            operand.index = static_cast<std::uint32_t>(found - list->begin());
            return true;
        }
    if (const auto found = names_.find(name); found != names_.end()) {
        operand.kind = found->second.function ? Operand::Kind::function : Operand::Kind::variable;
        operand.index = found->second.index;
        return true;
    }
    return false;
}

FunctionParser::Raw FunctionParser::parse_name() {
    Raw raw;
    const Token name = tokens_.advance();
    if (name.text == "_")
        return raw;
    if (const std::uint32_t slot = find_register(name.text); slot != kNone) {
        raw.operand.kind = Operand::Kind::reg;
        raw.operand.index = slot;
        if (tokens_.current().kind == Token::Kind::word)
            if (const auto selector = selector_of(tokens_.current().text.substr(1))) {
                raw.operand.selector = *selector;
                tokens_.advance();
            }
        return raw;
    }
    if (name.text.starts_with('%')) {
        std::string special(name.text);
        if (tokens_.current().kind == Token::Kind::word)
            special += tokens_.advance().text;
        const auto known = special_register(special);
        if (!known)
            throw SyntaxError{
                error_at(name.line, fmt::format("register {} is not declared", quote(special)))};
        raw.operand.kind = Operand::Kind::special;
        raw.operand.index = static_cast<std::uint32_t>(*known);
        return raw;
    }
    if (!find_symbol(name.text, raw.operand)) {
        raw.unresolved = name.text;
        return raw;
    }
    if (tokens_.current().is("+") || tokens_.current().is("-"))
        raw.operand.value = tokens_.integer("an offset");
    return raw;
}

FunctionParser::Raw FunctionParser::parse_address() {
    Raw raw;
    const Token start = tokens_.current();
    if (start.kind == Token::Kind::identifier) {
        raw = parse_name();
        if (!raw.unresolved.empty())
            throw SyntaxError{error_at(start.line, fmt::format("{} is not declared", quote(start.text)))};
        if (tokens_.accept("+") || tokens_.current().is("-"))
            raw.operand.value = tokens_.integer("an offset");
    } else {
        raw.operand.kind = Operand::Kind::immediate;
        raw.operand.value = tokens_.integer("an address");
        raw.constant.bits = raw.operand.value;
    }
    if (tokens_.accept(","))
        raw.inside.push_back(parse_operand());
    tokens_.expect("]");
    raw.operand.memory = true;
    return raw;
}

FunctionParser::Raw FunctionParser::parse_operand() {
    Raw raw;
    if (tokens_.accept("["))
        return parse_address();
    if (tokens_.accept("{")) {
        raw.operand.kind = Operand::Kind::vector;
        do {
            if (raw.elements.size() == kMaxTuple || tokens_.current().is("{"))
                tokens_.complain("the tuple is too long or nested");
            raw.elements.push_back(parse_operand());
        } while (tokens_.accept(","));
        tokens_.expect("}");
        return raw;
    }
    const bool register_negated = tokens_.current().is("-") &&
                                  tokens_.peek().kind == Token::Kind::identifier &&
                                  find_register(tokens_.peek().text) != kNone;
    if (register_negated || (tokens_.current().is("!") && tokens_.peek().kind == Token::Kind::identifier)) {
        tokens_.advance();
        raw = parse_name();
        raw.operand.negated = true;
        return raw;
    }
    if (tokens_.current().kind == Token::Kind::identifier && tokens_.current().text != "WARP_SZ")
        return parse_name();
    raw.operand.kind = Operand::Kind::immediate;
    raw.constant = tokens_.constant();
    return raw;
}

std::vector<FunctionParser::Raw> FunctionParser::parse_operands() {
    std::vector<Raw> raws;
    if (tokens_.accept(";"))
        return raws;
    bool after_bar = false;
    for (;;) {
        raws.push_back(parse_operand());
        raws.back().after_bar = after_bar;
        if (!raws.back().inside.empty())
            raws.push_back(Raw(std::move(raws.back().inside.front())));
        after_bar = tokens_.accept("|");
        if (after_bar)
            continue;
        if (tokens_.accept(";"))
            return raws;
        tokens_.expect(",");
    }
}

const Lookup &FunctionParser::look_up(const std::string &text) {
    const auto found = cache_.find(text);
    return found != cache_.end() ? found->second
                                 : cache_.emplace(text, look_up_instruction(text)).first->second;
}

bool FunctionParser::fits(const OperandForm &form, const Raw &raw, const DecodedForm &decoded) const {
    using Kind = Operand::Kind;
    const Operand &operand = raw.operand;
    if (form.role == OperandForm::Role::label)
        return !raw.unresolved.empty();
    if (!raw.unresolved.empty() || operand.memory != (form.role == OperandForm::Role::address))
        return false;
    if (operand.memory)
        return operand.kind != Kind::special && operand.kind != Kind::function;

    const std::uint32_t length = vector_length(field<Vector>(decoded, Field::vector));
    if (operand.kind == Kind::vector) {
        if (!form.vector || (raw.elements.size() != length && !form.coordinates &&
                             decoded.opcode != Opcode::mov && !spreads_matrices(decoded.opcode)))
            return false;
        OperandForm element = form;
        element.vector = false;
        return std::ranges::all_of(raw.elements, [&](const Raw &part) {
            return part.operand.kind != Kind::vector && fits(element, part, DecodedForm{});
        });
    }
    if (length > 1 && form.vector && !form.coordinates)
        return false;
    const bool predicate = operand.kind == Kind::reg && function_.registers[operand.index] == Type::pred;
    if (operand.kind == Kind::reg && predicate != (form.type == Type::pred))
        return false;
    const bool negative =
        decoded.opcode == Opcode::vmad && (decoded.flags & flag_bit(Flag::plus_one)) == 0 && !predicate;
    if (operand.negated && !predicate && !negative)
        return false;
    if (operand.selector.width != 0 && !takes(decoded.opcode, form.role, operand.selector))
        return false;
    if (form.role == OperandForm::Role::destination)
        return !operand.negated && (operand.kind == Kind::reg || operand.kind == Kind::none);
    return operand.kind != Kind::none || form.vector;
}

void FunctionParser::store(const OperandForm &form, const Raw &raw, const DecodedForm &decoded,
                           std::uint32_t at) {
    Operand operand = raw.operand;
    operand.type = form.type;
    if (!raw.unresolved.empty()) {
        add_pending(PendingLabel::Where::operand, at, 0, raw.unresolved, tokens_.current().line);
    } else if (operand.kind == Operand::Kind::immediate && !operand.memory) {
        operand.value = bits_as(raw.constant, form.type);
    } else if (operand.kind == Operand::Kind::vector) {
        operand.count = static_cast<std::uint8_t>(raw.elements.size());
        operand.index = size_of(function_.operands);
        OperandForm element = form;
        if (decoded.opcode == Opcode::mov)
            element.type = part_of(form.type, raw.elements.size());
        const bool layered =
            word_text(Field::geometry, decoded.fields[std::to_underlying(Field::geometry)]).starts_with('a');
        function_.operands.resize(function_.operands.size() + raw.elements.size());
        for (std::uint32_t i = 0; i < operand.count; ++i) {
            const Operand &part = raw.elements[i].operand;
            if (spreads_matrices(decoded.opcode) && part.kind == Operand::Kind::reg)
                element.type = function_.registers[part.index];
            if (form.coordinates) // the layer's number comes first
                element.type = i == 0 && layered ? Type::u32 : form.type;
            store(element, raw.elements[i], decoded, operand.index + i);
        }
    }
    function_.operands[at] = operand;
}

// Operands that may be missing become Kind::none, so that each form's operands keep their places.
bool FunctionParser::try_form(const DecodedForm &form, std::vector<Raw> &raws, Instruction &instruction) {
    std::array<const Raw *, kMaxOperands> chosen{};
    std::size_t next = 0;
    for (std::size_t i = 0; i < form.operand_count; ++i) {
        const OperandForm &operand = form.operands[i];
        const bool there = next < raws.size() && raws[next].after_bar == operand.predicate_pair;
        if (there && fits(operand, raws[next], form))
            chosen[i] = &raws[next++];
        else if (!operand.optional)
            return false;
    }
    if (next != raws.size())
        return false;
    set_modifiers(instruction, form);
    instruction.operands = size_of(function_.operands);
    instruction.operand_count = form.operand_count;
    function_.operands.resize(function_.operands.size() + form.operand_count);
    for (std::uint32_t i = 0; i < form.operand_count; ++i)
        if (chosen[i] != nullptr)
            store(form.operands[i], *chosen[i], form, instruction.operands + i);
    return true;
}

Operand FunctionParser::parse_call_operand() {
    const Token start = tokens_.current();
    const Raw raw = parse_operand();
    Operand operand = raw.operand;
    if (!raw.unresolved.empty())
        throw SyntaxError{error_at(start.line, fmt::format("{} is not declared", quote(start.text)))};
    if (operand.kind == Operand::Kind::immediate)
        operand.value = raw.constant.bits;
    if (operand.kind == Operand::Kind::vector || operand.memory)
        throw SyntaxError{error_at(start.line, fmt::format("{} cannot be passed", quote(start.text)))};
    return operand;
}

std::vector<Operand> FunctionParser::parse_call_list() {
    std::vector<Operand> list;
    tokens_.expect("(");
    while (!tokens_.accept(")")) {
        list.push_back(parse_call_operand());
        if (!tokens_.current().is(")"))
            tokens_.expect(",");
    }
    return list;
}

void FunctionParser::parse_call(Instruction &instruction) {
    Call call;
    if (tokens_.current().is("(")) {
        call.results = parse_call_list();
        tokens_.expect(",");
    }
    call.callee = parse_call_operand();
    if (call.callee.kind != Operand::Kind::function && call.callee.kind != Operand::Kind::reg)
        tokens_.complain("what is called is neither a function nor a register");
    instruction.call = size_of(function_.calls);
    if (tokens_.accept(",")) {
        if (tokens_.current().is("(")) {
            call.arguments = parse_call_list();
            tokens_.accept(",");
        }
        if (!tokens_.current().is(";")) {
            const std::uint32_t line = tokens_.current().line;
            add_pending(PendingLabel::Where::call, instruction.call, 0,
                        tokens_.expect_identifier("a prototype"), line);
        }
    }
    tokens_.expect(";");
    function_.calls.push_back(std::move(call));
}

void FunctionParser::parse_instruction() {
    Instruction instruction;
    if (tokens_.accept("@")) {
        instruction.guard_negated = tokens_.accept("!");
        const std::string_view name = tokens_.expect_identifier("a predicate");
        instruction.guard = find_register(name);
        if (instruction.guard == kNone || function_.registers[instruction.guard] != Type::pred)
            tokens_.complain(fmt::format("{} is not a predicate", quote(name)));
    }
    instruction.line = tokens_.current().line;
    text_ = tokens_.expect_identifier("an instruction");
    while (tokens_.current().kind == Token::Kind::word)
        text_ += tokens_.advance().text;

    const Lookup &known = look_up(text_);
    if (known.forms.empty()) {
        unsupported(instruction.line,
                    fmt::format("instruction {} is not known{}", quote(text_),
                                known.problem == LookupProblem::mnemonic ? "" : " with these modifiers"));
        tokens_.skip_past_semicolon();
        return;
    }
    if (known.forms.front().opcode == Opcode::call) {
        set_modifiers(instruction, known.forms.front());
        parse_call(instruction);
        function_.instructions.push_back(instruction);
        return;
    }
    std::vector<Raw> raws = parse_operands();
    for (const DecodedForm &form : known.forms)
        if (try_form(form, raws, instruction)) {
            function_.instructions.push_back(instruction);
            return;
        }
    const auto stray = std::ranges::find_if(raws, [](const Raw &raw) { return !raw.unresolved.empty(); });
    if (stray != raws.end() && known.forms.front().operands[0].role != OperandForm::Role::label &&
        known.forms.front().opcode != Opcode::brx)
        throw SyntaxError{
            error_at(instruction.line, fmt::format("{} is not declared", quote(stray->unresolved)))};
    unsupported(instruction.line,
                fmt::format("instruction {} is not known with these operands", quote(text_)));
}

} // namespace singularity::ptx
