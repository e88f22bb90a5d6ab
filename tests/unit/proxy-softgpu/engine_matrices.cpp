// SPDX-License-Identifier: GPL-2.0-or-later
// Matrix instructions and mbarriers. Which lane holds what is written here as the PTX ISA's formulas have it,
// element by element; numbers are small integers, so that every order of additions gives the same.
#include "engine_fixture.hpp"

#include <bit>
#include <cstdint>
#include <functional>
#include <random>
#include <string>

namespace {

using namespace singularity::softgpu;
using namespace singularity::softgpu::test;
using U = std::uint32_t;

std::string list(const std::string &reg, unsigned first, unsigned count) {
    std::string text = "{";
    for (unsigned i = 0; i < count; ++i)
        text += fmt::format("{}{}{}", i == 0 ? "" : ", ", reg, first + i);
    return text + "}";
}

// One warp; every lane has `a`, `b`, `c` registers of 32 bits at [lane * 16 + ...] of its arrays.
std::vector<U> multiply(const std::string &instruction, unsigned a, unsigned b, unsigned c, unsigned d,
                        const std::vector<U> &va, const std::vector<U> &vb, const std::vector<U> &vc) {
    std::string body = "mul.wide.u32 %w, %i, 60; add.s64 %a, %a, %w; add.s64 %b, %b, %w; add.s64 %c, %c, %w; "
                       "add.s64 %out, %out, %w;\n";
    const auto load = [&](const char *base, unsigned first, unsigned count) {
        for (unsigned i = 0; i < count; ++i)
            body += fmt::format("ld.global.b32 %r{}, [{}+{}];\n", first + i, base, 4 * i);
    };
    load("%a", 0, a);
    load("%b", 8, b);
    load("%c", 12, c);
    body += fmt::format("{} {}, {}, {}, {};\n", instruction, list("%r", 20, d), list("%r", 0, a),
                        list("%r", 8, b), list("%r", 12, c));
    for (unsigned i = 0; i < d; ++i)
        body += fmt::format("st.global.b32 [%out+{}], %r{};\n", 4 * i, 20 + i);
    Device device(elementwise(body));
    U *out = device.zeroed<U>(32 * 16);
    device.run("k", {1}, {32}, Arguments(out, device.upload(va), device.upload(vb), device.upload(vc), 32U));
    return {out, out + 32 * 16};
}

struct Case {
    std::string instruction;
    unsigned k;
    unsigned bits; // of an element of A and B
    std::function<U(int)> encode;
    bool floating;
    int least;
};

U f16_of(int value) { // small integers only
    if (value == 0)
        return 0;
    const U sign = value < 0 ? 0x8000U : 0;
    const auto magnitude = static_cast<U>(std::abs(value));
    const auto exponent = static_cast<U>(std::bit_width(magnitude)) - 1;
    return sign | (exponent + 15) << 10U | ((magnitude << (10 - exponent)) & 0x3FFU);
}

void products(void **) {
    const auto f32 = [](int v) { return std::bit_cast<U>(static_cast<float>(v)); };
    const Case cases[] = {
        {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, 16, f16_of, true, -8},
        {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 8, 16, f16_of, true, -8},
        {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, [=](int v) { return f32(v) >> 16U; },
         true, -8},
        {"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 8, 16, [=](int v) { return f32(v) >> 16U; },
         true, -8},
        {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 8, 32, f32, true, -8},
        {"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 4, 32, f32, true, -8},
        {"mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", 16, 8,
         [](int v) { return static_cast<U>(v) & 0xFFU; }, false, -8},
        {"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 32, 8,
         [](int v) { return static_cast<U>(v) & 0xFFU; }, false, -8},
        {"mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32", 32, 8,
         [](int v) { return static_cast<U>(v) & 0xFFU; }, false, 0},
    };
    std::mt19937 random(3);
    for (const Case &one : cases) {
        int a[16][32];
        int b[32][8];
        int c[16][8];
        const auto draw = [&] {
            return one.least + static_cast<int>(random() % static_cast<unsigned>(8 - one.least + 1));
        };
        for (auto &row : a)
            for (int &x : row)
                x = draw();
        for (auto &row : b)
            for (int &x : row)
                x = draw();
        for (auto &row : c)
            for (int &x : row)
                x = draw();
        const unsigned pack = 32 / one.bits;
        const unsigned a_elements = 16 * one.k / 32;
        const unsigned b_elements = 8 * one.k / 32;
        std::vector<U> va(32 * 16);
        std::vector<U> vb(32 * 16);
        std::vector<U> vc(32 * 16);
        for (unsigned lane = 0; lane < 32; ++lane) {
            const unsigned group = lane / 4;
            const unsigned member = lane % 4;
            for (unsigned i = 0; i < a_elements;
                 ++i) { // ai: rows alternate every register, columns every other
                const unsigned reg = i / pack;
                const unsigned row = group + (reg % 2) * 8;
                const unsigned column = member * pack + i % pack + (reg / 2) * 4 * pack;
                va[lane * 16 + reg] |= one.encode(a[row][column]) << (one.bits * (i % pack) % 32);
            }
            for (unsigned i = 0; i < b_elements; ++i) {
                const unsigned reg = i / pack;
                vb[lane * 16 + reg] |= one.encode(b[member * pack + i % pack + reg * 4 * pack][group])
                                       << (one.bits * (i % pack) % 32);
            }
            for (unsigned i = 0; i < 4; ++i) {
                const int value = c[i < 2 ? group : group + 8][member * 2 + (i & 1U)];
                vc[lane * 16 + i] = one.floating ? f32(value) : static_cast<U>(value);
            }
        }
        const auto found = multiply(one.instruction, a_elements / pack, b_elements / pack, 4, 4, va, vb, vc);
        for (unsigned lane = 0; lane < 32; ++lane)
            for (unsigned i = 0; i < 4; ++i) {
                const unsigned row = i < 2 ? lane / 4 : lane / 4 + 8;
                const unsigned column = lane % 4 * 2 + (i & 1U);
                int sum = c[row][column];
                for (unsigned k = 0; k < one.k; ++k)
                    sum += a[row][k] * b[k][column];
                const U expected = one.floating ? f32(sum) : static_cast<U>(sum);
                if (found[lane * 16 + i] != expected)
                    fail(fmt::format("{}: element {},{}: {:#x}, not {:#x}", one.instruction, row, column,
                                     found[lane * 16 + i], expected));
            }
    }
}

void matrices_in_shared_memory(void **) {
    // 4 matrices of 8 x 8 halves; element (n, r, c) is 64 n + 8 r + c. Rows are 16 bytes.
    const std::string fill = R"(.shared .align 16 .b8 m[512];
mul.lo.u32 %r1, %i, 524296; mov.u32 %r9, 0;
)";
    std::string body = fill;
    // Lane l writes row l: words (8 l + 2 w) | (8 l + 2 w + 1) << 16.
    body += "mov.u32 %r2, m; shl.b32 %r3, %i, 4; add.u32 %r2, %r2, %r3;\n";
    for (unsigned w = 0; w < 4; ++w)
        body += fmt::format("shl.b32 %r4, %i, 3; add.u32 %r4, %r4, {}; add.u32 %r5, %r4, 1; shl.b32 %r5, "
                            "%r5, 16; or.b32 %r4, %r4, %r5; st.shared.b32 [%r2+{}], %r4;\n",
                            2 * w, 4 * w);
    body += "bar.warp.sync -1;\n";
    body += "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r2];\n";
    body += "ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16 {%r14, %r15, %r16, %r17}, [%r2];\n";
    body += "movmatrix.sync.aligned.m8n8.trans.b16 %r18, %r10;\n";
    body += "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r2], {%r10, %r11, %r12, %r13};\n";
    body += "ld.shared.b32 %r19, [%r2+4];\nmul.wide.u32 %w, %i, 36; add.s64 %out, %out, %w;\n";
    for (unsigned i = 0; i < 10; ++i)
        body += fmt::format("st.global.b32 [%out+{}], %r{};\n", 4 * i, 10 + i);
    Device device(elementwise(body));
    U *out = device.zeroed<U>(320);
    device.run("k", {1}, {32}, Arguments(out, out, out, out, 32U));
    for (U lane = 0; lane < 32; ++lane) {
        const U r = lane / 4;
        const U c = lane % 4 * 2;
        const auto two = [](U low, U high) { return low | high << 16U; };
        const U *mine = out + 10 * lane;
        for (U n = 0; n < 4; ++n) {
            assert_int_equal(mine[n], two(64 * n + 8 * r + c, 64 * n + 8 * r + c + 1));
            assert_int_equal(mine[4 + n], two(64 * n + 8 * c + r, 64 * n + 8 * (c + 1) + r));
        }
        assert_int_equal(mine[8], mine[4]);
        // Stored transposed: row `lane` now holds column lane % 8 of matrix lane / 8.
        const U n = lane / 8;
        assert_int_equal(mine[9], two(64 * n + 8 * 2 + lane % 8, 64 * n + 8 * 3 + lane % 8));
    }
}

void mbarriers(void **) {
    // Three phases of 64 arrivals: what a thread writes before it arrives all see after the phase.
    const std::string body = R"(.shared .align 8 .b64 bar;
.shared .align 4 .b32 cells[64];
mov.u32 %r1, bar; mov.u32 %t2, cells; shl.b32 %r2, %i, 2; add.u32 %r2, %r2, %t2;
setp.eq.u32 %p1, %i, 0;
@%p1 mbarrier.init.shared::cta.b64 [%r1], 64;
bar.sync 0;
mov.u32 %r10, 0; mov.u32 %r11, 0;
again:
add.u32 %r3, %r10, %i; st.shared.b32 [%r2], %r3;
mbarrier.arrive.shared::cta.b64 %rd1, [%r1];
wait:
mbarrier.try_wait.shared::cta.b64 %p2, [%r1], %rd1;
@!%p2 bra wait;
add.u32 %r4, %i, 1; and.b32 %r4, %r4, 63; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %t2;
ld.shared.b32 %r5, [%r4]; add.u32 %r11, %r11, %r5;
bar.sync 0;
add.u32 %r10, %r10, 100;
setp.lt.u32 %p3, %r10, 300;
@%p3 bra again;
st.global.b32 [%out], %r11;)";
    Device device(elementwise(body));
    U *out = device.zeroed<U>(64);
    device.run("k", {1}, {64}, Arguments(out, out, out, out, 64U));
    for (U i = 0; i < 64; ++i)
        assert_int_equal(out[i], 300 + 3 * ((i + 1) % 64));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(products), cmocka_unit_test(matrices_in_shared_memory),
                                cmocka_unit_test(mbarriers)};
    return cmocka_run_group_tests_name("softgpu-engine-matrices", tests, nullptr, nullptr);
}
