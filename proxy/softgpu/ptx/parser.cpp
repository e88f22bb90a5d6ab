// SPDX-License-Identifier: GPL-2.0-or-later
#include "ptx/parser.hpp"

#include "common/text.hpp"
#include "ptx/control_flow.hpp"
#include "ptx/declarations.hpp"
#include "ptx/function_parser.hpp"
#include "ptx/token_stream.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

namespace singularity::ptx {

namespace {

class ModuleParser {
  public:
    explicit ModuleParser(std::string_view source) : tokens_(source) {}

    Module parse() {
        parse_version();
        while (tokens_.current().kind != Token::Kind::end)
            parse_item();
        resolve_relocations();
        for (Function &function : module_.functions)
            if (function.defined)
                build_control_flow(function, module_);
        return std::move(module_);
    }

  private:
    void parse_version() {
        tokens_.expect(".version");
        const std::string_view version = tokens_.current().text;
        const std::size_t dot = version.find('.');
        const char *begin = version.data();
        const char *end = begin + version.size();
        const bool major = dot != std::string_view::npos &&
                           std::from_chars(begin, begin + dot, module_.version_major).ec == std::errc();
        if (!major || std::from_chars(begin + dot + 1, end, module_.version_minor).ec != std::errc())
            tokens_.complain(fmt::format("{} is not a version like 9.0", quote(version)));
        tokens_.advance();
    }

    void parse_target() {
        module_.target = tokens_.expect_identifier("a target like sm_90");
        const std::string_view digits =
            std::string_view(module_.target).substr(std::min<std::size_t>(module_.target.size(), 3));
        if (!module_.target.starts_with("sm_") ||
            std::from_chars(digits.data(), digits.data() + digits.size(), module_.sm).ec != std::errc())
            tokens_.complain(fmt::format("{} is not a target like sm_90", quote(module_.target)));
        while (tokens_.accept(","))
            tokens_.expect_identifier("a target's option");
    }

    void parse_address_size() {
        module_.address_size = tokens_.small_integer("32 or 64");
        if (module_.address_size != 64)
            tokens_.complain(fmt::format("address size {} is not 64", module_.address_size));
    }

    void unsupported(const Token &where) {
        if (!module_.unsupported)
            module_.unsupported =
                error_at(where.line, fmt::format("directive {} is not known", quote(where.text)));
    }

    Linkage parse_linkage() {
        Linkage linkage = Linkage::internal;
        constexpr std::pair<std::string_view, Linkage> words[] = {{".extern", Linkage::external},
                                                                  {".visible", Linkage::visible},
                                                                  {".weak", Linkage::weak},
                                                                  {".common", Linkage::common}};
        for (const auto &[word, meaning] : words)
            if (tokens_.accept(word))
                linkage = meaning;
        return linkage;
    }

    void skip_line(std::uint32_t line) {
        while (tokens_.current().line == line && tokens_.current().kind != Token::Kind::end)
            tokens_.advance();
    }

    void parse_item() {
        const Linkage linkage = parse_linkage();
        const Token directive = tokens_.advance();
        constexpr std::pair<std::string_view, Space> spaces[] = {{".global", Space::global},
                                                                 {".const", Space::constant},
                                                                 {".shared", Space::shared},
                                                                 {".local", Space::local}};
        for (const auto &[word, space] : spaces)
            if (directive.is(word)) {
                parse_module_variables(space, linkage, directive);
                return;
            }
        if (directive.is(".entry") || directive.is(".func"))
            parse_function(linkage, directive);
        else if (directive.is(".target"))
            parse_target();
        else if (directive.is(".address_size"))
            parse_address_size();
        else if (directive.is(".alias"))
            parse_alias();
        else if (directive.is(".file"))
            skip_line(directive.line);
        else if (directive.is(".section")) // debugging information
            tokens_.skip_statement();
        else if (directive.is(".pragma"))
            tokens_.skip_past_semicolon();
        else if (directive.kind == Token::Kind::word) {
            unsupported(directive);
            tokens_.skip_statement();
        } else if (!directive.is(";"))
            throw SyntaxError{error_at(directive.line,
                                       fmt::format("expected a directive, found {}", quote(directive.text)))};
    }

    // Textures and the like are declared as variables of types without a size.
    void parse_module_variables(Space space, Linkage linkage, const Token &directive) {
        for (DeclaredVariable &declared : parse_variables(tokens_, space, linkage)) {
            Variable &variable = declared.variable;
            if (type_size(variable.type) == 0 && !module_.unsupported)
                module_.unsupported =
                    error_at(directive.line,
                             fmt::format("{} is of type .{}, which is not known", quote(variable.name),
                                         word_text(Field::type, static_cast<std::uint8_t>(variable.type))));
            auto index = static_cast<std::uint32_t>(module_.variables.size());
            if (const auto [entry, added] = names_.try_emplace(declared.name, ModuleName{false, index});
                !added) {
                // A declaration may be followed by the definition.
                index = entry->second.index;
                if (entry->second.function || module_.variables[index].linkage != Linkage::external)
                    throw SyntaxError{
                        error_at(directive.line, fmt::format("{} is declared twice", quote(variable.name)))};
                module_.variables[index] = std::move(variable);
            } else {
                module_.variables.push_back(std::move(variable));
            }
            for (const PendingRelocation &pending : declared.pending)
                relocations_.emplace_back(index, pending);
        }
    }

    void resolve_relocations() {
        for (const auto &[variable, pending] : relocations_) {
            const auto found = names_.find(pending.symbol);
            if (found == names_.end())
                throw SyntaxError{
                    error_at(pending.line, fmt::format("{} is not declared", quote(pending.symbol)))};
            auto &relocations = module_.variables[variable].relocations;
            if (pending.relocation < relocations.size()) {
                relocations[pending.relocation].function = found->second.function;
                relocations[pending.relocation].symbol = found->second.index;
            }
        }
    }

    std::uint32_t find_function(std::string_view name) {
        const auto found = names_.find(name);
        if (found == names_.end() || !found->second.function)
            tokens_.complain(fmt::format("{} is not a declared function", quote(name)));
        return found->second.index;
    }

    void parse_alias() {
        Alias alias;
        alias.function = find_function(tokens_.expect_identifier("a function's name"));
        tokens_.expect(",");
        alias.target = find_function(tokens_.expect_identifier("a function's name"));
        tokens_.expect(";");
        module_.aliases.push_back(alias);
    }

    void parse_three(std::array<std::uint32_t, 3> &values) {
        values = {1, 1, 1};
        for (std::uint32_t &value : values) {
            value = tokens_.small_integer("a size");
            if (!tokens_.accept(","))
                return;
        }
    }

    // Between the parameters and the body.
    void parse_performance(Function &function) {
        Limits &limits = function.limits;
        while (tokens_.current().kind == Token::Kind::word) {
            const Token directive = tokens_.advance();
            if (directive.is(".maxntid"))
                parse_three(limits.max_threads);
            else if (directive.is(".reqntid"))
                parse_three(limits.required_threads);
            else if (directive.is(".reqnctapercluster"))
                parse_three(limits.cluster);
            else if (directive.is(".minnctapersm") || directive.is(".maxnctapersm"))
                (directive.is(".minnctapersm") ? limits.min_blocks : ignored_) =
                    tokens_.small_integer("a number");
            else if (directive.is(".maxnreg"))
                limits.max_registers = tokens_.small_integer("a number");
            else if (directive.is(".maxclusterrank"))
                limits.max_cluster_rank = tokens_.small_integer("a number");
            else if (directive.is(".explicitcluster"))
                limits.explicit_cluster = true;
            else if (directive.is(".blocksareclusters"))
                limits.blocks_are_clusters = true;
            else if (directive.is(".noreturn"))
                function.noreturn = true;
            else if (directive.is(".abi_preserve") || directive.is(".abi_preserve_control"))
                ignored_ = tokens_.small_integer("a number");
            else if (directive.is(".pragma")) {
                function.pragmas.emplace_back(tokens_.advance().text);
                tokens_.expect(";");
            } else if (!function.unsupported) {
                function.unsupported =
                    error_at(directive.line, fmt::format("directive {} is not known", quote(directive.text)));
            }
        }
    }

    void parse_function(Linkage linkage, const Token &directive) {
        Function function;
        function.linkage = linkage;
        function.kernel = directive.is(".entry");
        function.line = directive.line;
        if (tokens_.accept(".attribute")) {
            tokens_.expect("(");
            for (int open = 1; open > 0; tokens_.advance()) {
                open += tokens_.current().is("(") ? 1 : tokens_.current().is(")") ? -1 : 0;
                if (tokens_.current().kind == Token::Kind::end)
                    tokens_.complain("expected ')', found the end");
            }
        }
        if (tokens_.current().is("("))
            function.results = parse_parameters(tokens_);
        const std::string_view name = tokens_.expect_identifier("a function's name");
        function.name = name;
        if (tokens_.current().is("("))
            function.parameters = parse_parameters(tokens_);
        if (!function.parameters.empty())
            function.parameter_size = function.parameters.back().offset + function.parameters.back().size;
        parse_performance(function);

        const auto [entry, added] =
            names_.try_emplace(name, ModuleName{true, static_cast<std::uint32_t>(module_.functions.size())});
        const ModuleName known = entry->second;
        if (added)
            module_.functions.emplace_back().name = function.name;
        else if (!known.function)
            tokens_.complain(fmt::format("{} is declared twice", quote(name)));
        function.noreturn |= module_.functions[known.index].noreturn;
        if (!tokens_.accept(";")) {
            if (module_.functions[known.index].defined)
                tokens_.complain(fmt::format("{} is defined twice", quote(name)));
            function.defined = true;
            FunctionParser(tokens_, names_, cache_, function).parse_body();
        } else if (module_.functions[known.index].defined) {
            return;
        }
        module_.functions[known.index] = std::move(function);
    }

    TokenStream tokens_;
    Module module_;
    ModuleNames names_;
    InstructionCache cache_;
    std::vector<std::pair<std::uint32_t, PendingRelocation>> relocations_;
    std::uint32_t ignored_ = 0;
};

} // namespace

Expected<Module> parse_module(std::string_view source) {
    try {
        return ModuleParser(source).parse();
    } catch (SyntaxError &problem) {
        return std::unexpected(std::move(problem.error));
    }
}

const Function *Module::function(std::string_view name) const {
    const auto found = std::ranges::find(functions, name, &Function::name);
    return found == functions.end() ? nullptr : &*found;
}

const Variable *Module::variable(std::string_view name) const {
    const auto found = std::ranges::find(variables, name, &Variable::name);
    return found == variables.end() ? nullptr : &*found;
}

} // namespace singularity::ptx
