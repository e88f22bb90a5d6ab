// SPDX-License-Identifier: GPL-2.0-or-later
// What nvcc makes of the sources beside this file: everything in it must be known.
#include "cmocka.hpp"
#include "ptx/fatbin.hpp"
#include "ptx/parser.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>

namespace {

using namespace singularity;
using namespace singularity::ptx;
using test::expect_equal;

std::string read(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        test::fail("cannot open " + path.string());
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string compiled(std::string_view name) {
    return read(std::filesystem::path(SINGULARITY_SOFTGPU_COMPILED) / name);
}

Module parse(const std::string &text) {
    auto module = parse_module(text);
    if (!module)
        test::fail(module.error().message());
    return std::move(*module);
}

// Operands, targets and blocks point to what is there, so that an engine need not look again.
void check_indices(const Module &module, const Function &function) {
    const auto check = [&](bool right) {
        if (!right)
            test::fail("an index of " + function.name + " is outside of its list");
    };
    const auto check_operand = [&](const Operand &operand) {
        using Kind = Operand::Kind;
        const std::map<Kind, std::size_t> limits = {{Kind::reg, function.registers.size()},
                                                    {Kind::variable, module.variables.size()},
                                                    {Kind::own_variable, function.variables.size()},
                                                    {Kind::parameter, function.parameters.size()},
                                                    {Kind::result, function.results.size()},
                                                    {Kind::function, module.functions.size()},
                                                    {Kind::instruction, function.instructions.size() + 1},
                                                    {Kind::branch_table, function.branch_tables.size()},
                                                    {Kind::prototype, function.prototypes.size()}};
        if (const auto limit = limits.find(operand.kind); limit != limits.end())
            check(operand.index < limit->second);
        if (operand.kind == Kind::vector)
            check(operand.index + operand.count <= function.operands.size());
        if (operand.kind == Kind::instruction)
            check(function.blocks.at(operand.value).first == operand.index);
    };
    std::ranges::for_each(function.operands, check_operand);
    for (const Call &call : function.calls) {
        check_operand(call.callee);
        check_operand(call.targets);
        std::ranges::for_each(call.arguments, check_operand);
    }
    std::uint32_t next = 0;
    for (const Block &block : function.blocks) {
        check(block.first == next && block.last >= block.first);
        next = block.last;
        for (const std::uint32_t successor : block.successors)
            check(successor < function.blocks.size());
        check(block.reconvergence == kNone || block.reconvergence < function.blocks.size());
    }
    check(next == function.instructions.size());
}

void everything_is_known(void ** /*state*/) {
    std::map<std::string, int> unknown;
    int files = 0;
    std::size_t instructions = 0;
    for (const auto &file : std::filesystem::directory_iterator(SINGULARITY_SOFTGPU_COMPILED)) {
        if (file.path().extension() != ".ptx")
            continue;
        ++files;
        const Module module = parse(read(file.path()));
        if (module.unsupported)
            ++unknown[file.path().filename().string() + ": " + module.unsupported->message()];
        for (const Function &function : module.functions) {
            if (!function.defined)
                continue;
            instructions += function.instructions.size();
            check_indices(module, function);
            if (function.unsupported)
                ++unknown[function.unsupported->why];
        }
    }
    for (const auto &[what, times] : unknown)
        print_error("%d times: %s\n", times, what.c_str());
    assert_int_equal(unknown.size(), 0);
    assert_int_equal(files, 41);
    assert_true(instructions > 20000);
}

std::size_t count(const Function &function, Opcode opcode) {
    return static_cast<std::size_t>(std::ranges::count(function.instructions, opcode, &Instruction::opcode));
}

void spot_checks(void ** /*state*/) {
    const Module memory = parse(compiled("memory.90.ptx"));
    const Variable *first = memory.variable("first");
    assert_int_equal(first->relocations.size(), 2);
    expect_equal(memory.variables[first->relocations[0].symbol].name, "second");
    assert_int_equal(memory.variable("middle")->relocations[0].addend, 8);
    assert_true(memory.variable("managed")->managed && memory.variable("dynamic")->unsized);
    assert_true(memory.variable("table")->space == Space::constant && memory.variable("table")->size == 256);
    assert_int_equal(memory.function("local_array")->local_size, 160);
    const Function &vectors = *memory.function("vectors");
    assert_int_equal(vectors.parameters.at(3).size, 48);
    assert_int_equal(vectors.parameters[3].offset, 32);
    assert_int_equal(vectors.parameters[3].alignment, 16);
    assert_int_equal(vectors.parameters[6].offset, 90);

    const Module control = parse(compiled("control.90.ptx"));
    assert_int_equal(control.function("choose")->limits.max_threads[0], 128);
    assert_int_equal(control.function("choose")->limits.min_blocks, 2);
    const Function &table = *control.function("table");
    assert_int_equal(count(table, Opcode::brx), 1);
    assert_int_equal(table.branch_tables.at(0).size(), 4);
    // All cases meet again in one block.
    const auto brx = std::ranges::find_if(table.blocks, [&](const Block &block) {
        return block.last > block.first && table.instructions[block.last - 1].opcode == Opcode::brx;
    });
    assert_true(brx != table.blocks.end() && brx->successors.size() == 3 && brx->reconvergence != kNone);
    const auto &endless = control.function("endless")->blocks;
    assert_true(std::ranges::any_of(endless, [&](const Block &b) {
        return std::ranges::find(b.successors, static_cast<std::uint32_t>(&b - endless.data())) !=
               b.successors.end();
    }));

    const Module functions = parse(compiled("functions.90.ptx"));
    const Function &calls = *functions.function("calls");
    assert_true(std::ranges::any_of(calls.calls, [](const Call &c) {
        return c.callee.kind == Operand::Kind::reg && c.targets.kind == Operand::Kind::prototype;
    }));
    assert_int_equal(functions.variable("operations")->relocations.size(), 3);
    assert_true(functions.variable("operations")->relocations[2].function);

    const Module diagnostics = parse(compiled("diagnostics.90.ptx"));
    assert_false(diagnostics.function("vprintf")->defined);
    assert_false(diagnostics.function("__assertfail")->defined);
    assert_int_equal(count(*diagnostics.function("asserts"), Opcode::trap), 1);

    const Module warps = parse(compiled("warps.90.ptx"));
    assert_true(count(*warps.function("votes"), Opcode::redux) >= 5);
    assert_int_equal(count(*warps.function("votes"), Opcode::match), 3);
    assert_true(count(*warps.function("barriers"), Opcode::bar) +
                    count(*warps.function("barriers"), Opcode::barrier) >=
                6);
}

void fatbins_of_every_mode(void ** /*state*/) {
    struct Mode {
        std::string_view file;
        Compression ptx;
        Compression elf;
    };
    constexpr auto modes = std::to_array<Mode>({{"default.fatbin", Compression::zstd, Compression::none},
                                                {"size.fatbin", Compression::zstd, Compression::zstd},
                                                {"speed.fatbin", Compression::lz4, Compression::none},
                                                {"balance.fatbin", Compression::zstd, Compression::none},
                                                {"none.fatbin", Compression::none, Compression::none}});
    const Mode *last = nullptr;
    std::map<std::uint64_t, std::string> first;
    for (const Mode &mode : modes) {
        last = &mode;
        const std::string bytes = compiled(mode.file);
        const auto entries = read_image(std::as_bytes(std::span(bytes)));
        if (!entries)
            test::fail(entries.error().message());
        int ptx = 0;
        int elf = 0;
        for (const FatbinEntry &entry : *entries) {
            const auto content = payload(entry);
            if (!content)
                test::fail(std::string(mode.file) + ": " + content.error().message());
            assert_true(entry.compression == (entry.kind == EntryKind::ptx ? mode.ptx : mode.elf));
            if (entry.kind == EntryKind::elf) {
                ++elf;
                expect_equal({reinterpret_cast<const char *>(content->data()), 4}, "\x7f"
                                                                                   "ELF");
                continue;
            }
            ++ptx;
            // Every mode holds the same text.
            const auto text = ptx_text(entry);
            const auto [known, added] = first.try_emplace(
                entry.sm * 2 + ((entry.flags & fatbin_flag::kArchitectureSpecific) != 0 ? 1 : 0), *text);
            expect_equal(*text, known->second);
            assert_int_equal(parse(*text).sm, entry.sm);
        }
        assert_int_equal(ptx, 4);
        assert_int_equal(elf, 3);
        assert_int_equal(select_ptx(*entries, 89)->sm, 75);
        assert_int_equal(select_ptx(*entries, 100)->flags & fatbin_flag::kArchitectureSpecific, 0);
        assert_int_equal(select_ptx(*entries, 100)->sm, 90);
        assert_int_equal(select_ptx(*entries, 120)->sm, 120);
    }
    assert_ptr_equal(last, &modes.back());
}

void damaged_programs_are_survived(void ** /*state*/) {
    const std::string good = compiled("warps.75.ptx");
    std::mt19937 random(11);
    for (int round = 0; round < 300; ++round) {
        std::string text = good;
        for (int edits = 0; edits < 3; ++edits)
            text[random() % text.size()] = static_cast<char>(32 + random() % 95);
        const auto module = parse_module(text);
        if (module)
            for (const Function &function : module->functions)
                if (function.defined && !function.unsupported)
                    check_indices(*module, function);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_known),
        cmocka_unit_test(spot_checks),
        cmocka_unit_test(fatbins_of_every_mode),
        cmocka_unit_test(damaged_programs_are_survived),
    };
    return cmocka_run_group_tests_name("proxy_softgpu_compiled", tests, nullptr, nullptr);
}
