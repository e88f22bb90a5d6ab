// SPDX-License-Identifier: GPL-2.0-or-later
// The IR of PTX written here, and what is refused.
#include "ptx/parser.hpp"

#include "cmocka.hpp"

#include <algorithm>
#include <bit>
#include <random>
#include <string>

namespace {

using namespace singularity;
using namespace singularity::ptx;
using Kind = Operand::Kind;
using test::expect_contains;
using test::expect_equal;

constexpr std::string_view kHeader = ".version 9.0\n.target sm_90a\n.address_size 64\n";

Module parse(std::string_view items) {
    auto module = parse_module(std::string(kHeader) + std::string(items));
    if (!module)
        test::fail(module.error().message());
    return std::move(*module);
}

// A kernel with registers of every kind around these lines; line 10 is the first.
std::string kernel(std::string_view body) {
    return "\n.visible .entry k(\n.param .u64 a, .param .align 4 .b8 s[12])\n{ .reg .pred %p<4>; .reg .b16 "
           "%h<4>; .reg .b32 %r<9>; .reg .b64 "
           "%rd<9>;\n.reg .f32 %f<5>; .reg .f64 %d<3>;\n" +
           std::string(body) + "\n}\n";
}

Module parse_kernel(std::string_view body) {
    Module module = parse(kernel(body));
    if (module.functions.back().unsupported)
        test::fail(module.functions.back().unsupported->message());
    return module;
}

const Operand &operand(const Function &function, std::size_t instruction, std::uint32_t i) {
    return function.operands[function.instructions[instruction].operands + i];
}

std::string why_refused(const std::string &text) {
    const auto module = parse_module(std::string(kHeader) + text);
    return module ? "accepted" : module.error().message();
}

void header_and_parameters(void ** /*state*/) {
    const Module module = parse(".entry k(.param .u64 .ptr .global .align 4 a, .param .u8 b, .param .u16 c,\n"
                                ".param .align 16 .b8 d[32], .param .u64 e, .param .u32 f)\n"
                                ".maxntid 128, 2\n.reqntid 64\n.minnctapersm 3\n.maxnreg 40\n{ ret; }\n");
    assert_int_equal(module.version_major, 9);
    assert_int_equal(module.sm, 90);
    expect_equal(module.target, "sm_90a");
    const Function &k = module.functions.at(0);
    const std::uint64_t offsets[] = {0, 8, 10, 16, 48, 56};
    for (std::size_t i = 0; i < 6; ++i)
        assert_int_equal(k.parameters.at(i).offset, offsets[i]);
    assert_int_equal(k.parameter_size, 60);
    assert_true(k.parameters[0].pointer && k.parameters[0].pointed_space == Space::global);
    assert_int_equal(k.parameters[0].pointed_alignment, 4);
    assert_int_equal(k.limits.max_threads[1], 2);
    assert_int_equal(k.limits.max_threads[2], 1);
    assert_int_equal(k.limits.required_threads[0], 64);
    assert_int_equal(k.limits.min_blocks, 3);
    assert_int_equal(k.limits.max_registers, 40);
}

void modifiers_are_decoded(void ** /*state*/) {
    const Module module = parse_kernel("@!%p1 fma.rz.ftz.sat.f32 %f1, %f2, 0f3F800000, 1.5;\n"
                                       "setp.lo.and.u32 %p1|%p2, %r1, -1, !%p3;\n"
                                       "atom.acquire.gpu.shared.add.u64 %rd1, [%rd2+-8], 5;\n"
                                       "mad.wide.s16 %r1, %h1, -2, %r2;\n"
                                       "ld.global.nc.L1::no_allocate.L2::128B.v2.f32 {%f1, _}, [%rd1+16];\n"
                                       "mov.b64 %rd1, {%r1, 7};\n"
                                       "shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;\n"
                                       "mov.f64 %d1, -0d3FF0000000000000;\n"
                                       "mov.u32 %r1, %tid.y;\n"
                                       "cvt.rni.s32.f32 %r1, %f1;\n"
                                       "st.volatile.u8 [s+3], 255;\nmad.lo.s32 %r1, %r2, 0xFFFFFFFF, %r3;\n");
    const Function &k = module.functions[0];
    const auto &in = k.instructions;
    assert_true(in[0].opcode == Opcode::fma && in[0].rounding == Rounding::rz && in[0].has(Flag::ftz) &&
                in[0].has(Flag::sat));
    assert_true(in[0].guard_negated && k.registers[in[0].guard] == Type::pred);
    assert_int_equal(in[0].line, 9);
    assert_int_equal(operand(k, 0, 2).value, 0x3F800000);
    assert_int_equal(operand(k, 0, 3).value, std::bit_cast<std::uint32_t>(1.5F));

    assert_true(in[1].comparison == Comparison::lo && in[1].operation == Operation::and_ &&
                in[1].types[0] == Type::u32);
    assert_int_equal(in[1].operand_count, 5);
    assert_true(operand(k, 1, 1).kind == Kind::reg && operand(k, 1, 1).type == Type::pred);
    assert_int_equal(operand(k, 1, 3).value, 0xFFFFFFFF);
    assert_true(operand(k, 1, 4).negated);

    assert_true(in[2].semantics == Semantics::acquire && in[2].scope == Scope::gpu &&
                in[2].spaces[0] == Space::shared);
    assert_true(in[2].operation == Operation::add && operand(k, 2, 1).memory &&
                operand(k, 2, 1).kind == Kind::reg);
    assert_true(static_cast<std::int64_t>(operand(k, 2, 1).value) == -8);
    assert_true(operand(k, 2, 3).kind == Kind::none);

    assert_true(in[3].mode == Mode::wide && operand(k, 3, 0).type == Type::s32 &&
                operand(k, 3, 1).type == Type::s16);
    assert_true(static_cast<std::int64_t>(operand(k, 3, 2).value) == -2);

    assert_true(in[4].vector == Vector::v2 && in[4].has(Flag::nc) && operand(k, 4, 0).count == 2);
    assert_true(k.operands[operand(k, 4, 0).index + 1].kind == Kind::none);
    assert_true(k.operands[operand(k, 5, 1).index].type == Type::b32);
    assert_int_equal(k.operands[operand(k, 5, 1).index + 1].value, 7);

    assert_true(in[6].mode == Mode::bfly && operand(k, 6, 1).kind == Kind::none);
    assert_int_equal(operand(k, 6, 5).value, 0xFFFFFFFF);
    assert_true(std::bit_cast<double>(operand(k, 7, 1).value) == -1.0);
    assert_true(operand(k, 8, 1).kind == Kind::special &&
                operand(k, 8, 1).index == static_cast<std::uint32_t>(SpecialRegister::tid_y));
    assert_true(in[9].rounding == Rounding::rni && in[9].types[0] == Type::s32 &&
                in[9].types[1] == Type::f32);
    assert_true(operand(k, 10, 0).kind == Kind::parameter && operand(k, 10, 0).index == 1 &&
                operand(k, 10, 0).value == 3);
    assert_true(static_cast<std::int64_t>(operand(k, 11, 2).value) == -1);
}

// ptxas takes modifiers in any order, and compilers and libraries rely on it: each of these is taken by it,
// and means what the manual's order, beside it, means.
void modifiers_in_any_order(void ** /*state*/) {
    constexpr std::pair<std::string_view, std::string_view> pairs[] = {
        {"vote.ballot.sync.b32 %r1, %p1, -1;", "vote.sync.ballot.b32 %r1, %p1, -1;"},
        {"vote.all.sync.pred %p2, %p1, -1;", "vote.sync.all.pred %p2, %p1, -1;"},
        {"shfl.idx.sync.b32 %r1, %r2, 3, 31, -1;", "shfl.sync.idx.b32 %r1, %r2, 3, 31, -1;"},
        {"match.sync.any.b32 %r1, %r2, -1;", "match.any.sync.b32 %r1, %r2, -1;"},
        {"redux.add.sync.s32 %r1, %r2, -1;", "redux.sync.add.s32 %r1, %r2, -1;"},
        {"st.global.release.gpu.b32 [%rd1], %r1;", "st.release.gpu.global.b32 [%rd1], %r1;"},
        {"ld.u32.shared.acquire.cta %r1, [%rd1];", "ld.acquire.cta.shared.u32 %r1, [%rd1];"},
        {"ld.global.f32.v2 {%f1, %f2}, [%rd1];", "ld.global.v2.f32 {%f1, %f2}, [%rd1];"},
        {"fma.ftz.f32.rn %f1, %f2, %f3, %f4;", "fma.rn.ftz.f32 %f1, %f2, %f3, %f4;"},
        {"setp.s32.lt %p1, %r1, %r2;", "setp.lt.s32 %p1, %r1, %r2;"},
        {"cvt.f32.rn.s32 %f1, %r1;", "cvt.rn.f32.s32 %f1, %r1;"}, // types keep their order
        {"ldmatrix.x2.trans.sync.aligned.m8n8.b16 {%r1, %r2}, [%rd1];",
         "ldmatrix.sync.aligned.m8n8.x2.trans.b16 {%r1, %r2}, [%rd1];"},
        {"atom.u32.add.global %r1, [%rd1], %r2;", "atom.global.add.u32 %r1, [%rd1], %r2;"},
    };
    for (const auto &[free, manual] : pairs) {
        const Module module = parse_kernel(std::string(free) + "\n" + std::string(manual));
        const Instruction &a = module.functions[0].instructions[0];
        const Instruction &b = module.functions[0].instructions[1];
        if (a.opcode != b.opcode || a.flags != b.flags || a.types != b.types || a.spaces != b.spaces ||
            a.rounding != b.rounding || a.comparison != b.comparison || a.operation != b.operation ||
            a.mode != b.mode || a.semantics != b.semantics || a.scope != b.scope || a.vector != b.vector ||
            a.shape != b.shape || a.cache != b.cache || a.hint != b.hint)
            test::fail(std::string(free) + " is not read as " + std::string(manual));
    }
    // What it refuses.
    constexpr std::pair<std::string_view, std::string_view> refused[] = {
        {"add.u32.u32", "%r1, %r2, %r3;"},
        {"set.lt.f64.u32", "%d1, %r2, %r3;"},
        {"vote.ballot.sync", "%r1, %p1, -1;"},
        {"atom.gpu.global.gpu.add.u32", "%r1, [%rd1], %r2;"},
    };
    for (const auto &[instruction, operands] : refused) {
        const Module module = parse(kernel(std::string(instruction) + " " + std::string(operands)));
        assert_true(module.functions[0].unsupported.has_value());
        expect_contains(module.functions[0].unsupported->message(),
                        "'" + std::string(instruction) + "' is not known with these modifiers");
    }
}

void initialisers(void ** /*state*/) {
    const Module module = parse(
        ".extern .func f(.param .b32 x);\n.global .align 8 .u64 p[3] = {generic(v)+4, f, 7};\n"
        ".visible .const .align 4 .f32 v[2] = {0f3F800000, -2.0};\n.global .b8 m[2] = {0xFF(v), 0xFF00(v)};\n"
        ".extern .shared .align 16 .b8 dynamic[];\n.global .s16 n[2][2] = {{1, -1}, {3, 1<<4|2}};\n");
    const Variable *p = module.variable("p");
    assert_int_equal(p->size, 24);
    assert_int_equal(p->relocations.size(), 2);
    assert_true(p->relocations[0].generic && !p->relocations[0].function && p->relocations[0].addend == 4);
    expect_equal(module.variables[p->relocations[0].symbol].name, "v");
    assert_true(p->relocations[1].function && p->relocations[1].offset == 8);
    expect_equal(module.functions[p->relocations[1].symbol].name, "f");
    assert_int_equal(static_cast<int>(p->initial[16]), 7);
    const Variable *v = module.variable("v");
    assert_true(v->space == Space::constant && v->linkage == Linkage::visible);
    assert_int_equal(static_cast<int>(v->initial[7]), 0xC0);
    assert_int_equal(module.variable("m")->relocations[1].shift, 8);
    assert_true(module.variable("dynamic")->unsized && module.variable("dynamic")->alignment == 16);
    const Variable *n = module.variable("n");
    assert_int_equal(n->size, 8);
    assert_int_equal(static_cast<int>(n->initial[2]), 0xFF);
    assert_int_equal(static_cast<int>(n->initial[6]), 18);
}

// 0: branch; 1: then; 2: else; 3: both; loop back to 0; 4: end.
void blocks_meet_again(void ** /*state*/) {
    const Module module = parse_kernel(
        "start:\n@%p1 bra other;\nadd.s32 %r1, %r1, 1;\nbra.uni both;\nother:\nadd.s32 %r1, %r1, 2;\n"
        "both:\n@%p2 bra start;\n@%p3 exit;\nret;\n");
    const auto &blocks = module.functions[0].blocks;
    assert_int_equal(blocks.size(), 6);
    assert_int_equal(blocks[0].successors.size(), 2);
    assert_int_equal(blocks[0].reconvergence, 3);
    assert_int_equal(blocks[1].reconvergence, 3);
    assert_int_equal(blocks[2].reconvergence, 3);
    assert_int_equal(blocks[3].reconvergence, 4);
    assert_true(blocks[4].ends && blocks[4].reconvergence == 5);
    assert_true(blocks[5].ends && blocks[5].successors.empty());
}

void tables_and_endless_loops(void ** /*state*/) {
    const Module module =
        parse_kernel("t: .branchtargets one, two, one;\nbrx.idx %r1, t;\none:\nbra one;\ntwo:\nret;\n");
    const Function &k = module.functions[0];
    assert_true(operand(k, 0, 1).kind == Kind::branch_table);
    assert_int_equal(k.branch_tables[0].size(), 3);
    assert_int_equal(k.branch_tables[0][1].index, 2);
    assert_int_equal(k.branch_tables[0][1].value, 2);
    assert_int_equal(k.blocks[0].successors.size(), 2);
    assert_int_equal(k.blocks[0].reconvergence, 1); // lanes that return are not waited for
    assert_int_equal(k.blocks[1].reconvergence, kNone);
}

void calls(void ** /*state*/) {
    const Module module =
        parse(".func (.param .b32 r) f(.param .b64 x);\n.extern .func fatal() .noreturn;\n" +
              kernel("{ .param .b64 p; .param .b32 q;\nst.param.b64 [p], %rd1;\ncall.uni (q), f, "
                     "(p);\nld.param.b32 %r1, [q]; }\n"
                     "{ .param .b64 p; .param .b32 q;\nproto: .callprototype (.param .b32 _) _ (.param .b64 "
                     "_);\ncall (q), %rd2, (p), proto;\n}\n"
                     "@%p1 bra on;\ncall.uni fatal;\non:\nret;"));
    const Function &k = *module.function("k");
    const auto direct = std::ranges::find(k.instructions, Opcode::call, &Instruction::opcode);
    const Call &call = k.calls[direct->call];
    assert_true(call.callee.kind == Kind::function && module.functions[call.callee.index].name == "f");
    assert_true(call.arguments.at(0).kind == Kind::own_variable &&
                call.results.at(0).kind == Kind::own_variable);
    assert_int_equal(k.variables[call.results[0].index].offset, 8);
    assert_true(k.calls[1].callee.kind == Kind::reg && k.calls[1].targets.kind == Kind::prototype);
    assert_true(k.calls[1].arguments[0].index != call.arguments[0].index);
    assert_int_equal(k.prototypes[0].parameters.size(), 1);
    // The call that does not return ends its block.
    const auto fatal = std::ranges::find_if(
        k.blocks, [](const Block &block) { return block.ends && block.last - block.first == 1; });
    assert_true(fatal != k.blocks.end() && fatal->successors.empty());
}

// A name in inner braces hides one outside; labels of an inner scope are its own.
void scopes(void ** /*state*/) {
    const Module module = parse_kernel("{ .reg .b32 t; mov.u32 t, 1; L: @%p1 bra L; }\n{ .reg .b64 t; "
                                       "mov.u64 t, 2; L: @%p1 bra L; @%p1 bra End; }\nEnd:");
    const Function &k = module.functions[0];
    assert_true(k.registers[operand(k, 0, 0).index] == Type::b32);
    assert_true(k.registers[operand(k, 2, 0).index] == Type::b64);
    assert_int_equal(operand(k, 1, 0).index, 1);
    assert_int_equal(operand(k, 3, 0).index, 3);
    assert_int_equal(operand(k, 4, 0).index, 5);
}

void unknown_is_unsupported_where_it_stands(void ** /*state*/) {
    const Module module = parse(
        ".entry good() { ret; }\n.entry bad()\n{\n.reg .b32 r;\nfrobnicate.x.u32 r, {r, r}, [r];\nwarble "
        "r;\nret; }\n"
        ".entry odd() { .reg .b32 r; add.rn.u32 r, r, r; }\n.entry few() { .reg .b32 r; add.u32 r, r; }\n"
        ".entry wrong() { .reg .pred p; add.u32 p, 1, 2; }\n.entry direct() { .wibble 3; ret; }\n");
    assert_false(module.function("good")->unsupported.has_value());
    expect_equal(module.function("bad")->unsupported->message(),
                 "cannot read PTX line 8: instruction 'frobnicate.x.u32' is not known");
    assert_int_equal(module.function("bad")->instructions.size(), 1);
    expect_contains(module.function("odd")->unsupported->message(),
                    "'add.rn.u32' is not known with these modifiers");
    expect_contains(module.function("few")->unsupported->message(),
                    "'add.u32' is not known with these operands");
    expect_contains(module.function("wrong")->unsupported->message(), "with these operands");
    expect_contains(module.function("direct")->unsupported->message(), "directive '.wibble'");
    expect_contains(parse(".frob x;\n.entry k() { ret; }").unsupported->message(),
                    "PTX line 4: directive '.frob'");
}

void malformed_is_refused(void ** /*state*/) {
    expect_equal(why_refused(".entry k() {\nmov.u32 %r1, 1; }"),
                 "cannot read PTX line 5: register '%r1' is not declared");
    expect_contains(why_refused(".entry k() { bra nowhere; }"), "'nowhere' is not declared");
    expect_contains(why_refused(".entry k() { ret; "), "expected '}', found the end");
    expect_contains(why_refused(".entry k() { ret }"), "expected a number, found '}'");
    expect_contains(why_refused(".entry k() { .reg .b32 %r<99999999>; }"), "are not possible here");
    expect_contains(why_refused(".entry k() { .reg .b32 a; .reg .b32 a; }"), "declared twice");
    expect_contains(why_refused(".entry k() { L: L: ret; }"), "label 'L' is declared twice");
    expect_contains(why_refused(".entry k() { .reg .b32 r; @r ret; }"), "'r' is not a predicate");
    expect_contains(why_refused(".entry k() { ret; } .entry k() { ret; }"), "defined twice");
    expect_contains(why_refused(".global .b8 x[99999999999999999];"), "too large");
    expect_contains(why_refused(".global .b8 x[2] = {1, 2, 3};"), "more initial values");
    expect_contains(why_refused(".global .u64 x = missing;"), "'missing' is not declared");
    expect_contains(why_refused(".global .align 3 .u64 x;"), "alignment 3");
    expect_contains(why_refused(".global .f32 x = 0f12;"), "needs 8 digits");
    expect_contains(why_refused("/* no end"), "is not PTX");
    expect_contains(why_refused(".global .u32 x = " + std::string(5000, '(')), "nested too deeply");
    expect_contains(why_refused(".entry k() " + std::string(5000, '{')), "nested more than");
    expect_contains(why_refused("\x01"), "is not PTX");
    const auto empty = parse_module("");
    assert_false(empty.has_value());
}

// Any change of a good text is read or refused, but never crashes: this runs under the address sanitizer too.
void damaged_text_is_survived(void ** /*state*/) {
    const std::string good =
        std::string(kHeader) + ".global .align 8 .u64 v[3] = {generic(v)+4, 0xFF(v), -1};\n" +
        kernel(
            "t: .branchtargets a1, b1;\n.local .align 8 .b8 depot[64]; .shared .b32 sh[4];\n@%p1 bra a1;\n"
            "{ .param .b64 q; call.uni (q), g, (q); }\nbrx.idx %r1, t;\na1: ld.v2.u32 {%r1, %r2}, [%rd1+4];\n"
            "setp.eq.and.s32 %p1|%p2, %r1, 0x7, !%p1;\nb1: mov.f32 %f1, 0f3F800000; ret;")
            .insert(0, ".extern .func (.param .b64 r) g(.param .b64 x);\n");
    assert_true(parse_module(good).has_value());
    std::mt19937 random(20240607);
    constexpr std::string_view pieces[] = {"{", "}", ";",  ",", "[", "]",  "(", ")", ".b32", "%r1",
                                           "@", "-", "0x", "<", ":", "\"", "t", "|", " "};
    int accepted = 0;
    for (int round = 0; round < 10000; ++round) {
        std::string text = good;
        for (auto edits = 1 + random() % 3; edits > 0; --edits) {
            const std::size_t at = random() % text.size();
            switch (random() % 4) {
            case 0:
                text[at] = static_cast<char>(random());
                break;
            case 1:
                text.erase(at, random() % 20);
                break;
            case 2:
                text.insert(at, pieces[random() % std::size(pieces)]);
                break;
            default:
                text.insert(at, text.substr(random() % text.size(), random() % 40));
                break;
            }
        }
        const auto module = parse_module(text);
        accepted += module.has_value() ? 1 : 0;
        if (!module && module.error().why.empty())
            test::fail("an error without a reason");
    }
    assert_in_range(accepted, 1, 9999);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(header_and_parameters),
        cmocka_unit_test(modifiers_are_decoded),
        cmocka_unit_test(modifiers_in_any_order),
        cmocka_unit_test(initialisers),
        cmocka_unit_test(blocks_meet_again),
        cmocka_unit_test(tables_and_endless_loops),
        cmocka_unit_test(calls),
        cmocka_unit_test(scopes),
        cmocka_unit_test(unknown_is_unsupported_where_it_stands),
        cmocka_unit_test(malformed_is_refused),
        cmocka_unit_test(damaged_text_is_survived),
    };
    return cmocka_run_group_tests_name("proxy_softgpu_parser", tests, nullptr, nullptr);
}
