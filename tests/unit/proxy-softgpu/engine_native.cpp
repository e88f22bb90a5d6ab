// SPDX-License-Identifier: GPL-2.0-or-later
// Native code against the interpreter: generated kernels leave the same memory, execute the same number of
// instructions and fail with the same words. SINGULARITY_TEST_KERNELS: how many (60); SINGULARITY_TEST_SEED.
#include "engine_fixture.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>
#include <thread>

namespace {

using namespace singularity::softgpu;
using namespace singularity::softgpu::test;

constexpr unsigned kBlock = 96; // three warps, of which the last may be cut short
constexpr unsigned kGrid = 3;
constexpr unsigned kWords = 12; // that a thread begins with
constexpr unsigned kResults = 8 + 6 + 2 * 4 + 6 + 1;

// R, F, D, W, P stand for a register of 32 bits, f32, f64, 64 bits, predicate; # for a small number.
constexpr std::string_view kInstructions[] = {
    "add.s32 R, R, R;",
    "sub.s32 R, R, #;",
    "mul.lo.s32 R, R, R;",
    "mul.hi.u32 R, R, R;",
    "mul.hi.s32 R, R, R;",
    "mad.lo.s32 R, R, R, R;",
    "mul.wide.s32 W, R, R;",
    "mad.wide.u32 W, R, R, W;",
    "add.s64 W, W, W;",
    "sub.s64 W, W, #;",
    "mul.lo.s64 W, W, W;",
    "and.b32 R, R, R;",
    "or.b32 R, R, #;",
    "xor.b32 R, R, R;",
    "not.b32 R, R;",
    "and.b64 W, W, W;",
    "shl.b32 R, R, R;",
    "shl.b32 R, R, #;",
    "shr.u32 R, R, R;",
    "shr.s32 R, R, #;",
    "shl.b64 W, W, R;",
    "shr.u64 W, W, R;",
    "shr.s64 W, W, R;",
    "min.s32 R, R, R;",
    "max.u32 R, R, R;",
    "min.u64 W, W, W;",
    "max.s64 W, W, W;",
    "abs.s32 R, R;",
    "neg.s64 W, W;",
    "mov.b32 R, R;",
    "mov.b64 W, W;",
    "mov.b32 R, F;",
    "mov.b32 F, R;",
    "selp.b32 R, R, R, P;",
    "selp.f32 F, F, F, P;",
    "selp.b64 W, W, W, P;",
    "setp.lt.s32 P, R, R;",
    "setp.ge.u32 P, R, #;",
    "setp.eq.and.s32 P, R, R, P;",
    "setp.ne.xor.u64 P, W, W, P;",
    "setp.hi.or.u32 P|P, R, R, !P;",
    "setp.lt.f32 P, F, F;",
    "setp.geu.f32 P, F, F;",
    "setp.equ.ftz.f32 P|P, F, F;",
    "setp.nan.f64 P, D, D;",
    "setp.ne.f64 P, D, D;",
    "and.pred P, P, P;",
    "or.pred P, P, P;",
    "xor.pred P, P, P;",
    "not.pred P, P;",
    "mov.pred P, P;",
    "add.f32 F, F, F;",
    "sub.ftz.f32 F, F, F;",
    "mul.f32 F, F, F;",
    "mul.ftz.sat.f32 F, F, F;",
    "fma.rn.f32 F, F, F, F;",
    "fma.rn.ftz.f32 F, F, F, F;",
    "fma.rn.sat.f32 F, F, F, F;",
    "fma.rz.f32 F, F, F, F;",
    "add.rp.f32 F, F, F;",
    "div.rn.f32 F, F, F;",
    "rcp.rn.f32 F, F;",
    "sqrt.rn.f32 F, F;",
    "min.f32 F, F, F;",
    "max.ftz.f32 F, F, F;",
    "max.NaN.f32 F, F, F;",
    "neg.f32 F, F;",
    "abs.ftz.f32 F, F;",
    "ex2.approx.f32 F, F;",
    "rsqrt.approx.ftz.f32 F, F;",
    "sin.approx.f32 F, F;",
    "add.f64 D, D, D;",
    "mul.f64 D, D, D;",
    "fma.rn.f64 D, D, D, D;",
    "sub.rm.f64 D, D, D;",
    "div.rn.f64 D, D, D;",
    "min.f64 D, D, D;",
    "max.f64 D, D, D;",
    "abs.f64 D, D;",
    "neg.f64 D, D;",
    "sqrt.rn.f64 D, D;",
    "cvt.f64.f32 D, F;",
    "cvt.rn.f32.f64 F, D;",
    "cvt.rn.f32.s32 F, R;",
    "cvt.rn.f32.u64 F, W;",
    "cvt.rn.f64.s64 D, W;",
    "cvt.rzi.s32.f32 R, F;",
    "cvt.rni.ftz.u32.f32 R, F;",
    "cvt.rpi.s32.f64 R, D;",
    "cvt.rmi.s64.f32 W, F;",
    "cvt.u64.u32 W, R;",
    "cvt.s64.s32 W, R;",
    "cvt.u32.u64 R, W;",
    "cvt.s32.s8 R, R;",
    "cvt.u32.u16 R, R;",
    "cvt.sat.s16.s32 R, R;",
    "lop3.b32 R, R, R, R, 0x6A;",
    "prmt.b32 R, R, R, R;",
    "bfe.u32 R, R, #, #;",
    "bfi.b32 R, R, R, #, #;",
    "popc.b32 R, R;",
    "clz.b64 R, W;",
    "shf.l.wrap.b32 R, R, R, R;",
    "shf.r.clamp.b32 R, R, R, R;",
    "shf.l.clamp.b32 R, R, R, #;",
    "shf.r.wrap.b32 R, R, R, #;",
    "prmt.b32 R, R, R, 0x5410;",
    "prmt.b32 R, R, R, 0xBA98;",
    "prmt.b32.rc8 R, R, R, R;",
    "bfe.s32 R, R, R, R;",
    "bfe.u32 R, R, R, #;",
    "bfe.s64 W, W, R, #;",
    "bfe.u64 W, W, #, R;",
    "bfe.s32 R, R, #, #;",
    "bfi.b32 R, R, R, R, R;",
    "bfi.b64 W, W, W, R, #;",
    "popc.b64 R, W;",
    "clz.b32 R, R;",
    "brev.b32 R, R;",
    "brev.b64 W, W;",
    "mov.b32 {%h0, %h1}, R;",
    "mov.b32 R, {%h1, %h0};",
    "mov.b64 {%h0, %h1, %h2, %h3}, W;",
    "mov.b64 W, {%h0, %h2, %h1, %h3};",
    "mov.b64 {F, R}, W;",
    "mov.b64 W, {F, R};",
    "cvt.f32.f16 F, %h#x1;",
    "cvt.f32.bf16 F, %h#x1;",
    "cvt.rn.f16.f32 %h#x1, F;",
    "cvt.rn.bf16.f32 %h#x1, F;",
    "cvt.rz.f16.f32 %h#x1, F;",
    "cvt.rn.f16x2.f32 R, F, F;",
    "cvt.rn.bf16x2.f32 R, F, F;",
    "cvt.rn.relu.bf16x2.f32 R, F, F;",
    "div.s32 R, R, R;",
    "rem.u64 W, W, W;",
    "add.cc.u32 R, R, R;",
    "addc.u32 R, R, R;",
    "mov.b64 W, {R, R};",
    "mov.b64 {R, R}, W;",
    "mov.b64 D, W;",
    "mov.b64 W, D;",
    "mov.u32 R, %tid.x;",
    "mov.u32 R, %laneid;",
    "mov.u32 R, %nctaid.x;",
    "mov.u32 R, %clock;",
    // Memory: what belongs to the thread, what all read, what others write too.
    "ld.global.b32 R, [%own+#x4];",
    "ld.global.b64 W, [%own+16];",
    "ld.global.v2.b32 {R, R}, [%own+8];",
    "ld.global.v4.f32 {F, F, F, F}, [%own+16];",
    "st.global.b32 [%own+#x4], R;",
    "st.global.v2.f32 [%own+24], {F, F};",
    "st.global.u8 [%own+3], R;",
    "ld.global.s8 R, [%own+#x1];",
    "ld.global.u16 R, [%own+#x2];",
    "ld.global.b32 R, [%all+#x4];",
    "ld.global.f64 D, [%all+#x8];",
    "ld.b32 R, [%own+#x4];",
    "st.b32 [%own+4], R;",
    "st.shared.b32 [%mine+#x4], R;",
    "ld.shared.b32 R, [%mine+#x4];",
    "ld.shared.f32 F, [%mine+#x4];",
    "ld.shared.b32 R, [%half+#x4];",
    "st.shared.b32 [%common+#x4], R;",
    "ld.shared.v2.b32 {R, R}, [%common+8];",
    "ld.local.b32 R, [stack+#x4];",
    "st.local.b32 [stack+#x4], R;",
    "st.local.b64 [stack+8], W;",
    "ld.param.u32 R, [p2];",
    "and.b32 %t, R, 124; add.s32 %t, %t, %mine; ld.shared.b32 R, [%t];",
    "and.b32 %t, R, 60; cvt.u64.u32 %x, %t; add.s64 %x, %x, %all; ld.global.f32 F, [%x];",
};

class Kernel {
  public:
    explicit Kernel(std::uint32_t seed) : random_(seed) {}

    std::string text() {
        std::string body;
        for (unsigned i = 0; i < 4; ++i) {
            statements(body, 0, 6);
            switch (pick(3)) {
            case 0:
                body += "bar.sync 0;\n";
                break;
            case 1:
                body += fill("shfl.sync.bfly.b32 R|P, R, 5, 31, 0xffffffff;\n");
                break;
            default:
                break;
            }
        }
        std::string out;
        unsigned at = 0;
        const auto store = [&](const char *type, const char *name, unsigned count, unsigned words) {
            for (unsigned i = 0; i < count; ++i, at += words)
                out += fmt::format("st.global.{} [%out+{}], {}{};\n", type, at * 4, name, i);
        };
        store("b64", "%w", 4, 2);
        store("b32", "%r", 8, 1);
        store("f32", "%f", 6, 1);
        store("b16", "%h", 6, 1);
        out += fmt::format("selp.b32 %t, 1, 0, %p0; selp.b32 %c0, 2, 0, %p1; add.s32 %t, %t, %c0; "
                           "st.global.b32 [%out+{}], %t;\n",
                           at * 4);
        return fmt::format(R"(.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u32 p2) {{
.reg .pred %p<4>, %q<4>;
.reg .b32 %r<8>, %c<4>, %t, %i, %mine, %half, %common, %lane;
.reg .f32 %f<6>;
.reg .b16 %h<6>;
.reg .b64 %w<4>, %x, %own, %out, %all;
.reg .f64 %d<3>;
.shared .align 16 .b8 memory[1024];
.local .align 16 .b8 stack[64];
ld.param.u64 %out, [p0]; ld.param.u64 %all, [p1];
mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %t, %tid.x; mov.u32 %lane, %laneid;
mad.lo.s32 %i, %r0, %r1, %t;
mad.wide.u32 %own, %i, {}, %all;
mad.wide.u32 %out, %i, {}, %out;
mov.u32 %common, memory;
shl.b32 %mine, %t, 2; add.s32 %mine, %mine, %common;
shr.u32 %half, %lane, 4; shl.b32 %half, %half, 6; add.s32 %half, %half, %common;
ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%own]; ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%own+16];
ld.global.v4.f32 {{%f0, %f1, %f2, %f3}}, [%own+32]; mov.f32 %f4, %f0; mov.b32 %f5, %r2;
mov.b64 %w0, {{%r0, %r1}}; mov.b64 %w1, {{%r2, %r3}}; cvt.u64.u32 %w2, %i; mov.b64 %w3, 77;
mov.b64 {{%h0, %h1, %h2, %h3}}, %w1; mov.b32 {{%h4, %h5}}, %r7;
mov.b64 %d0, %w0; cvt.f64.f32 %d1, %f1; mov.f64 %d2, 0d3FF8000000000000;
setp.lt.s32 %p0, %r0, %r1; setp.gt.f32 %p1, %f0, %f1; setp.lt.u32 %p2, %lane, 16; setp.eq.u32 %p3, %t, %t;
{}
{}
ret;
}}
)",
                           kWords * 4, kResults * 4 + 4, body, out);
    }

  private:
    std::uint32_t pick(std::size_t below) { return static_cast<std::uint32_t>(random_() % below); }

    std::string fill(std::string_view pattern) {
        std::string text;
        for (std::size_t i = 0; i < pattern.size(); ++i) {
            const char c = pattern[i];
            const bool alone =
                (i == 0 || !std::isalnum(static_cast<unsigned char>(pattern[i - 1]))) &&
                (i + 1 == pattern.size() || !std::isalnum(static_cast<unsigned char>(pattern[i + 1])));
            if (c == '#' && i + 2 < pattern.size() && pattern[i + 1] == 'x') {
                text += fmt::format("{}", pick(6) * static_cast<unsigned>(pattern[i + 2] - '0'));
                i += 2;
            } else if (c == '#') {
                text += fmt::format("{}", pick(40));
            } else if (alone && c == 'R') {
                text += fmt::format("%r{}", pick(8));
            } else if (alone && c == 'F') {
                text += fmt::format("%f{}", pick(6));
            } else if (alone && c == 'W') {
                text += fmt::format("%w{}", pick(4));
            } else if (alone && c == 'D') {
                text += fmt::format("%d{}", pick(3));
            } else if (alone && c == 'P') {
                text += fmt::format("%p{}", pick(4));
            } else {
                text += c;
            }
        }
        return text;
    }

    void statements(std::string &body, unsigned depth, unsigned count) {
        for (unsigned i = 0; i < count; ++i) {
            const std::uint32_t kind = pick(20);
            if (kind == 0 && depth < 3) { // some lanes, or all, or none
                const unsigned label = labels_++;
                body += fmt::format("@{}%p{} bra L{};\n", pick(2) != 0 ? "!" : "", pick(4), label);
                statements(body, depth + 1, 3);
                body += fmt::format("L{}:\n", label);
            } else if (kind <= 2 && depth < 3) {
                const unsigned label = labels_++;
                body += fmt::format("mov.u32 %c{}, 0;\nL{}:\n", depth, label);
                statements(body, depth + 1, 4);
                const bool parting = pick(3) == 0; // lanes leave the loop one after the other
                body += fmt::format("add.s32 %c{0}, %c{0}, 1;\n", depth);
                if (parting)
                    body += fmt::format("and.b32 %t, %lane, 7; setp.lt.u32 %q{0}, %c{0}, %t;\n", depth);
                else
                    body += fmt::format("setp.lt.u32 %q{0}, %c{0}, {1};\n", depth, 2 + pick(9));
                body += fmt::format("@%q{} bra L{};\n", depth, label);
            } else {
                const std::string instruction = fill(kInstructions[pick(std::size(kInstructions))]);
                // One guard before one instruction.
                const bool several = std::ranges::count(instruction, ';') > 1;
                if (kind <= 5 && !several)
                    body += fmt::format("@{}%p{} ", pick(2) != 0 ? "!" : "", pick(4));
                body += instruction + "\n";
            }
        }
    }

    std::mt19937 random_;
    unsigned labels_ = 0;
};

struct Outcome {
    std::vector<std::uint32_t> memory;
    std::uint64_t instructions = 0;
    std::string fault;
    bool operator==(const Outcome &) const = default;
};

std::vector<std::uint32_t> beginning(std::uint32_t seed) {
    std::mt19937 random(seed);
    constexpr std::uint32_t corners[] = {0,           1,           2,           31,          32,
                                         33,          0x80000000U, 0x7FFFFFFFU, 0xFFFFFFFFU, 0x7F800000U,
                                         0xFF800000U, 0x7FC00001U, 0xFFABCDEFU, 0x7F812345U, 0x00000001U,
                                         0x807FFFFFU, 0x3F800000U, 0xBF800000U, 0x4F000000U, 0xCF000001U,
                                         0x5F800000U, 0x3F000000U};
    std::vector<std::uint32_t> words(std::size_t{kGrid} * kBlock * kWords + 64);
    for (std::uint32_t &word : words)
        word =
            static_cast<std::uint32_t>(random() % 3 == 0 ? corners[random() % std::size(corners)] : random());
    return words;
}

Outcome outcome_of(CompilerMode mode, const std::string &text, std::uint32_t seed, unsigned block,
                   unsigned repeat = 1) {
    set_compiler({mode, {}, SINGULARITY_SOFTGPU_COMPILER_LIBRARY});
    Outcome outcome;
    {
        Device device(text);
        for (unsigned i = 0; i < repeat; ++i) {
            const std::vector<std::uint32_t> words = beginning(seed);
            std::uint32_t *all = device.upload(words);
            const std::size_t results = std::size_t{kGrid} * kBlock * (kResults + 1);
            std::uint32_t *out = device.zeroed<std::uint32_t>(results);
            const auto result =
                device.try_run(device.launch("k", {kGrid}, {block}, Arguments(out, all, std::uint32_t{5})));
            if (result)
                outcome.instructions = result->thread_instructions;
            else
                outcome.fault = result.error().text;
            outcome.memory.assign(out, out + results);
            outcome.memory.insert(outcome.memory.end(), all, all + words.size());
        }
    }
    set_compiler({});
    return outcome;
}

std::uint32_t number(const char *name, std::uint32_t otherwise) {
    const char *text = std::getenv(name); // NOLINT(concurrency-mt-unsafe): no thread changes it
    return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

void generated(void **) {
    const std::uint32_t first = number("SINGULARITY_TEST_SEED", 1);
    const std::uint32_t count = number("SINGULARITY_TEST_KERNELS", 60);
    const std::uint64_t before = compiler_statistics().compiled;
    for (std::uint32_t seed = first; seed < first + count; ++seed) {
        const std::string text = Kernel(seed).text();
        const unsigned block = seed % 4 == 0 ? kBlock - 13 : kBlock;
        const Outcome interpreted = outcome_of(CompilerMode::interpreter, text, seed, block);
        const Outcome compiled = outcome_of(CompilerMode::compiler, text, seed, block);
        if (!interpreted.fault.empty())
            fail(fmt::format("seed {}: {}\n{}", seed, interpreted.fault, text));
        if (compiled == interpreted)
            continue;
        std::size_t at = 0;
        while (at < compiled.memory.size() && compiled.memory[at] == interpreted.memory[at])
            ++at;
        fail(
            fmt::format("seed {}: {} instructions, not {}; fault '{}'; word {} of {} is {:#x}, not {:#x}\n{}",
                        seed, compiled.instructions, interpreted.instructions, compiled.fault, at,
                        compiled.memory.size(), at < compiled.memory.size() ? compiled.memory[at] : 0,
                        at < compiled.memory.size() ? interpreted.memory[at] : 0, text));
    }
    assert_true(compiler_statistics().compiled > before + count);
    expect_equal(compiler_statistics().problem, std::string());
}

// A loop whose accesses leave the memory at some time: who finds out and what it says is the interpreter's.
void faults(void **) {
    for (const char *access : {"ld.global.b32 %r1, [%rd1];", "st.global.b32 [%rd1], %r0;",
                               "ld.global.v4.b32 {%r1, %r1, %r1, %r1}, [%rd1];",
                               "@%p1 st.global.b32 [%rd1], %r0;", "ld.global.b32 %r1, [%rd1+2];"}) {
        const std::string text = fmt::format(R"(.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u32 p2) {{
.reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [p1];
mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 16; add.s64 %rd1, %rd1, %rd2;
mov.u32 %r0, 0; setp.eq.u32 %p1, %r2, 40;
L: {}
add.s64 %rd1, %rd1, 16; add.s32 %r0, %r0, 1;
setp.lt.u32 %p0, %r0, 100000; @%p0 bra L;
ret;
}}
)",
                                             access);
        Outcome interpreted = outcome_of(CompilerMode::interpreter, text, 1, kBlock);
        Outcome compiled = outcome_of(CompilerMode::compiler, text, 1, kBlock);
        assert_false(interpreted.fault.empty());
        // Memory is at another address each time.
        for (Outcome *each : {&interpreted, &compiled})
            if (const auto at = each->fault.find("0x"); at != std::string::npos)
                each->fault.erase(at, each->fault.find_first_not_of("0123456789abcdefx", at) - at);
        if (compiled != interpreted)
            fail(fmt::format("{}: '{}', not '{}'", access, compiled.fault, interpreted.fault));
    }
}

// What is hot is compiled while it runs, by a thread of its own, and the launch does not wait for it.
void in_the_background(void **) {
    const std::string text = Kernel(3).text();
    const Outcome interpreted = outcome_of(CompilerMode::interpreter, text, 3, kBlock, 40);
    const std::uint64_t before = compiler_statistics().compiled;
    const Outcome hot = outcome_of(CompilerMode::both, text, 3, kBlock, 40);
    assert_true(hot == interpreted);
    const std::string loop = R"(.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u32 p2) {
.reg .pred %p<2>; .reg .b32 %r<4>;
mov.u32 %r0, 0;
L: add.s32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, 100000; @%p0 bra L;
ret;
}
)";
    set_compiler({CompilerMode::both, {}, SINGULARITY_SOFTGPU_COMPILER_LIBRARY});
    Device device(loop);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (compiler_statistics().compiled <= before && std::chrono::steady_clock::now() < end)
        device.run("k", {1}, {64}, Arguments(std::uint64_t{0}, std::uint64_t{0}, std::uint32_t{0}));
    set_compiler({});
    assert_true(compiler_statistics().compiled > before);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(generated), cmocka_unit_test(faults),
                                cmocka_unit_test(in_the_background)};
    return cmocka_run_group_tests_name("softgpu-engine-native", tests, nullptr, nullptr);
}
