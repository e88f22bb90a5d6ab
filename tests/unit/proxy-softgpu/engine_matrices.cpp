// SPDX-License-Identifier: GPL-2.0-or-later
// What lanes and blocks do together: matrix instructions, mbarriers, clusters. Which lane holds what is
// written here as the PTX ISA's formulas have it, element by element; numbers are small integers, so that
// every order of additions gives the same.
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

using Encoding = std::function<U(int)>;

// A shape, and how an element of A and of B is written.
struct Case {
    std::string instruction;
    unsigned m;
    unsigned k;
    unsigned bits;
    Encoding encode_a;
    Encoding encode_b;
    bool floating;
    int least_a;
    int least_b;
    int most;
};

// Small integers that the format has exactly.
Encoding floating(unsigned exponent_bits, unsigned fraction_bits) {
    return [=](int value) -> U {
        if (value == 0)
            return 0;
        const U sign = value < 0 ? 1U << (exponent_bits + fraction_bits) : 0;
        const auto magnitude = static_cast<U>(std::abs(value));
        const auto exponent = static_cast<U>(std::bit_width(magnitude)) - 1;
        const U bias = (1U << (exponent_bits - 1)) - 1;
        const U fraction = (magnitude << fraction_bits >> exponent) & ((1U << fraction_bits) - 1);
        return sign | (exponent + bias) << fraction_bits | fraction;
    };
}
Encoding integer(unsigned bits) {
    return [=](int value) { return static_cast<U>(value) & ((1U << bits) - 1); };
}

void products(void **) {
    const Encoding f32 = floating(8, 23);
    const Encoding f16 = floating(5, 10);
    const Encoding bf16 = floating(8, 7);
    const Encoding e4m3 = floating(4, 3);
    const Encoding e5m2 = floating(5, 2);
    const Encoding byte = integer(8);
    const Encoding nibble = integer(4);
    const Case cases[] = {
        {"m16n8k16.row.col.f32.f16.f16.f32", 16, 16, 16, f16, f16, true, -8, -8, 8},
        {"m16n8k8.row.col.f32.f16.f16.f32", 16, 8, 16, f16, f16, true, -8, -8, 8},
        {"m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, 16, bf16, bf16, true, -8, -8, 8},
        {"m16n8k8.row.col.f32.bf16.bf16.f32", 16, 8, 16, bf16, bf16, true, -8, -8, 8},
        {"m16n8k8.row.col.f32.tf32.tf32.f32", 16, 8, 32, f32, f32, true, -8, -8, 8},
        {"m16n8k4.row.col.f32.tf32.tf32.f32", 16, 4, 32, f32, f32, true, -8, -8, 8},
        {"m16n8k32.row.col.f32.e4m3.e4m3.f32", 16, 32, 8, e4m3, e4m3, true, -8, -8, 8},
        {"m16n8k32.row.col.f32.e5m2.e5m2.f32", 16, 32, 8, e5m2, e5m2, true, -8, -8, 8},
        {"m16n8k32.row.col.f32.e4m3.e5m2.f32", 16, 32, 8, e4m3, e5m2, true, -8, -8, 8},
        {"m16n8k32.row.col.f32.e5m2.e4m3.f32", 16, 32, 8, e5m2, e4m3, true, -8, -8, 8},
        {"m8n8k16.row.col.s32.s8.s8.s32", 8, 16, 8, byte, byte, false, -128, -128, 127},
        {"m16n8k16.row.col.s32.s8.s8.s32", 16, 16, 8, byte, byte, false, -128, -128, 127},
        {"m16n8k32.row.col.s32.s8.s8.s32", 16, 32, 8, byte, byte, false, -128, -128, 127},
        {"m16n8k32.row.col.s32.u8.u8.s32", 16, 32, 8, byte, byte, false, 0, 0, 255},
        {"m16n8k32.row.col.s32.s8.u8.s32", 16, 32, 8, byte, byte, false, -128, 0, 127},
        {"m8n8k32.row.col.s32.s4.s4.s32", 8, 32, 4, nibble, nibble, false, -8, -8, 7},
        {"m16n8k32.row.col.s32.u4.u4.s32", 16, 32, 4, nibble, nibble, false, 0, 0, 15},
        {"m16n8k32.row.col.s32.u4.s4.s32", 16, 32, 4, nibble, nibble, false, 0, -8, 7},
        {"m16n8k64.row.col.satfinite.s32.s4.s4.s32", 16, 64, 4, nibble, nibble, false, -8, -8, 7},
    };
    std::mt19937 random(3);
    for (const Case &one : cases) {
        int a[16][64];
        int b[64][8];
        int c[16][8];
        const auto draw = [&](auto &matrix, int least) {
            for (auto &row : matrix)
                for (int &x : row)
                    x = least + static_cast<int>(random() % static_cast<unsigned>(one.most - least + 1));
        };
        draw(a, one.least_a);
        draw(b, one.least_b);
        draw(c, -8);
        const unsigned pack = 32 / one.bits;
        const unsigned rows = one.m / 8; // of C in each lane
        const unsigned a_elements = one.m * one.k / 32;
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
                const unsigned row = group + (reg % rows) * 8;
                const unsigned column = member * pack + i % pack + (reg / rows) * 4 * pack;
                va[lane * 16 + reg] |= one.encode_a(a[row][column]) << (one.bits * (i % pack) % 32);
            }
            for (unsigned i = 0; i < b_elements; ++i) {
                const unsigned reg = i / pack;
                vb[lane * 16 + reg] |= one.encode_b(b[member * pack + i % pack + reg * 4 * pack][group])
                                       << (one.bits * (i % pack) % 32);
            }
            for (unsigned i = 0; i < 2 * rows; ++i) {
                const int value = c[i < 2 ? group : group + 8][member * 2 + (i & 1U)];
                vc[lane * 16 + i] = one.floating ? f32(value) : static_cast<U>(value);
            }
        }
        const auto found = multiply("mma.sync.aligned." + one.instruction, a_elements / pack,
                                    b_elements / pack, 2 * rows, 2 * rows, va, vb, vc);
        for (unsigned lane = 0; lane < 32; ++lane)
            for (unsigned i = 0; i < 2 * rows; ++i) {
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

// f64: A and B have one element in each lane, C and D two.
void products_of_doubles(void **) {
    const std::string body = R"(ld.global.f64 %fd1, [%a]; ld.global.f64 %fd2, [%b];
mul.wide.u32 %w, %i, 8; add.s64 %c, %c, %w; add.s64 %out, %out, %w;
ld.global.f64 %fd3, [%c]; ld.global.f64 %fd4, [%c+8];
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd5, %fd6}, {%fd1}, {%fd2}, {%fd3, %fd4};
st.global.f64 [%out], %fd5; st.global.f64 [%out+8], %fd6;)";
    Device device(elementwise(body, 8, 8));
    std::mt19937 random(4);
    const auto draw = [&](std::size_t count) {
        std::vector<double> values(count);
        for (double &x : values)
            x = static_cast<double>(static_cast<int>(random() % 2001) - 1000) / 8;
        return values;
    };
    const auto a = draw(32);
    const auto b = draw(32);
    const auto c = draw(64);
    double *out = device.zeroed<double>(64);
    device.run("k", {1}, {32}, Arguments(out, device.upload(a), device.upload(b), device.upload(c), 32U));
    for (unsigned row = 0; row < 8; ++row)
        for (unsigned column = 0; column < 8; ++column) {
            const unsigned at = 2 * (4 * row + column / 2) + column % 2;
            double sum = c[at];
            for (unsigned k = 0; k < 4; ++k)
                sum += a[4 * row + k] * b[4 * column + k];
            if (out[at] != sum)
                fail(fmt::format("element {},{}: {}, not {}", row, column, out[at], sum));
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

// Without clusters each block is one: its own rank is 0, the cluster's memory is the block's, its barrier the
// block's.
void clusters_of_one_block(void **) {
    const std::string body = R"(.shared .align 4 .b32 cells[64];
mov.u32 %r1, cells; mapa.shared::cluster.u32 %r2, %r1, 0; mov.u32 %r3, %tid.x;
xor.b32 %r4, %r3, 63; shl.b32 %r5, %r4, 2; add.u32 %r5, %r5, %r2;
st.shared::cluster.u32 [%r5], %r3;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
shl.b32 %r6, %r3, 2; add.u32 %r6, %r6, %r1; ld.shared.u32 %r7, [%r6];
mov.u32 %r8, %cluster_ctarank; mad.lo.u32 %r7, %r8, 100, %r7;
getctarank.shared::cluster.u32 %r8, %r2; mad.lo.u32 %r7, %r8, 200, %r7;
mov.u32 %r8, %cluster_nctarank; mad.lo.u32 %r7, %r8, 1000, %r7;
mov.u32 %r8, %clusterid.x; mad.lo.u32 %r7, %r8, 10000, %r7;
mov.u32 %r8, %nclusterid.x; mad.lo.u32 %r7, %r8, 100000, %r7;
st.global.u32 [%out], %r7;)";
    Device device(elementwise(body));
    U *out = device.zeroed<U>(192);
    device.run("k", {3}, {64}, Arguments(out, out, out, out, 192U));
    for (U i = 0; i < 192; ++i)
        assert_int_equal(out[i], 63 - i % 64 + 1000 + 10000 * (i / 64) + 300000);
}

void clusters_of_more_are_refused(void **) {
    Device device(".version 9.0\n.target sm_90\n.address_size 64\n"
                  ".visible .entry k() .reqnctapercluster 2, 1, 1 { ret; }\n");
    const Fault fault = device.fault_of(device.launch("k", {2}, {32}, Arguments()), FaultKind::not_supported);
    expect_contains(fault.text, "clusters of more than one block");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(products),
                                cmocka_unit_test(products_of_doubles),
                                cmocka_unit_test(matrices_in_shared_memory),
                                cmocka_unit_test(mbarriers),
                                cmocka_unit_test(clusters_of_one_block),
                                cmocka_unit_test(clusters_of_more_are_refused)};
    return cmocka_run_group_tests_name("softgpu-engine-matrices", tests, nullptr, nullptr);
}
