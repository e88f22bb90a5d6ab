// SPDX-License-Identifier: GPL-2.0-or-later
// f16, bf16, tf32 and eight-bit floats. Conversions of all 65536 patterns; arithmetic against _Float16 of the
// compiler, and against f64 rounded once where there is no such type.
#include "engine_fixture.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>

namespace {

using namespace singularity::softgpu::test;

using H = std::uint16_t;
using U = std::uint32_t;
using UL = std::uint64_t;

// A format of 16 bits, by its definition.
struct Format {
    int exponent_bits;
    int fraction_bits;
    [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    [[nodiscard]] U infinity() const { return ((1U << exponent_bits) - 1) << fraction_bits; }
    [[nodiscard]] bool nan(U bits) const { return (bits & 0x7FFFU) > infinity(); }
    [[nodiscard]] double value(U bits) const {
        const int exponent = static_cast<int>((bits & 0x7FFFU) >> fraction_bits);
        const double fraction = static_cast<double>(bits & ((1U << fraction_bits) - 1));
        const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
        if (nan(bits))
            return NAN;
        if ((bits & 0x7FFFU) == infinity())
            return sign * INFINITY;
        if (exponent == 0)
            return sign * std::ldexp(fraction, 1 - bias() - fraction_bits);
        return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias() - fraction_bits);
    }
    // The neighbours of a number are neighbouring patterns: the rounding that was asked for chooses.
    [[nodiscard]] U rounded(double x, char how) const {
        if (std::isnan(x))
            return 0x7FFFU;
        const U sign = std::signbit(x) ? 0x8000U : 0;
        const double magnitude = std::fabs(x);
        U low = 0;
        U high = infinity();
        while (high - low > 1) { // the largest pattern that is not above
            const U middle = (low + high) / 2;
            (value(middle) <= magnitude ? low : high) = middle;
        }
        if (std::isinf(x))
            return sign | infinity();
        const double below = value(low);
        if (below == magnitude)
            return sign | low;
        // Overflow is decided as if the exponent had no end.
        const double above = high == infinity() ? std::ldexp(1, bias() + 1) : value(high);
        bool up = false;
        switch (how) {
        case 'n': {
            const double middle = (below + above) / 2;
            up = magnitude > middle || (magnitude == middle && (low & 1U) != 0);
            break;
        }
        case 'z':
            break;
        case 'm':
            up = sign != 0;
            break;
        default:
            up = sign == 0;
            break;
        }
        return sign | (up ? high : low);
    }
};
constexpr Format kHalf{5, 10};
constexpr Format kBrain{8, 7};

std::vector<H> all_patterns() {
    std::vector<H> all(65536);
    for (U i = 0; i < all.size(); ++i)
        all[i] = static_cast<H>(i);
    return all;
}

void expect(const std::string &what, U in, U found, U wanted) {
    if (found != wanted)
        fail(fmt::format("{} of {:#x}: {:#x}, not {:#x}", what, in, found, wanted));
}

void all_halves(void **) {
    const auto in = all_patterns();
    for (const auto &[name, format] : {std::pair("f16", kHalf), std::pair("bf16", kBrain)}) {
        const auto wide = evaluate<U, H>(
            fmt::format("ld.global.b16 %h1, [%a]; cvt.f32.{} %f1, %h1; st.global.f32 [%out], %f1;", name),
            in);
        for (U i = 0; i < in.size(); ++i) {
            const double found = std::bit_cast<float>(wide[i]);
            const double wanted = format.value(i);
            if (std::isnan(wanted) ? wide[i] != 0x7FFFFFFFU
                                   : std::bit_cast<UL>(found) != std::bit_cast<UL>(wanted))
                fail(fmt::format("cvt.f32.{} of {:#x}: {}, not {}", name, i, found, wanted));
        }
        // And back: what it was, except that a NaN is the one that is made.
        const auto back = evaluate<H, H>(fmt::format("ld.global.b16 %h1, [%a]; cvt.f32.{0} %f1, %h1; "
                                                     "cvt.rn.{0}.f32 %h4, %f1; st.global.b16 [%out], %h4;",
                                                     name),
                                         in);
        for (U i = 0; i < in.size(); ++i)
            expect(name, i, back[i], format.nan(i) ? 0x7FFFU : i);
        const auto whole = evaluate<U, H>(
            fmt::format("ld.global.b16 %h1, [%a]; cvt.rni.s32.{} %r4, %h1; st.global.b32 [%out], %r4;", name),
            in);
        for (U i = 0; i < in.size(); ++i) {
            const double x = format.value(i);
            const double clamped = std::isnan(x) ? 0 : std::clamp(std::rint(x), -2147483648., 2147483647.);
            expect("cvt.rni.s32", i, whole[i], static_cast<U>(static_cast<std::int32_t>(clamped)));
        }
        const auto floor = evaluate<H, H>(
            fmt::format("ld.global.b16 %h1, [%a]; cvt.rmi.{0}.{0} %h4, %h1; st.global.b16 [%out], %h4;",
                        name),
            in);
        for (U i = 0; i < in.size(); ++i)
            expect("cvt.rmi", i, floor[i], format.rounded(std::floor(format.value(i)), 'n'));
    }
}

std::vector<float> floats_to_round() {
    std::mt19937 random(3);
    std::vector<float> list = {0.F,      -0.F,     65504.F,      65519.9F, 65520.F,    65536.F,  1e9F,
                               -1e9F,    INFINITY, -INFINITY,    NAN,      0x1p-24F,   0x1p-25F, 0x1.8p-25F,
                               0x1p-26F, 0x1p-14F, 0x1.ffcp-15F, 3.38e38F, 3.4028e38F, 1e-40F};
    while (list.size() < 30000) {
        const auto raw = static_cast<U>(random());
        if (random() % 2 != 0)
            list.push_back(std::bit_cast<float>(raw));
        else // what lies on, or right beside, the middle between two halves
            list.push_back(std::bit_cast<float>((raw & 0xFF0FF000U & ~0x70000000U) | 0x38000000U |
                                                static_cast<U>(random() % 3 + 0xFFFU)));
    }
    return list;
}

void rounding(void **) {
    const auto in = floats_to_round();
    for (const auto &[type, format] : {std::pair("f16", kHalf), std::pair("bf16", kBrain)}) {
        for (const std::string how : {"n", "z", "m", "p"}) {
            if (std::string_view(type) == "bf16" && (how == "m" || how == "p"))
                continue;
            const auto found = evaluate<H, float>(
                fmt::format("ld.global.f32 %f1, [%a]; cvt.r{}.{}.f32 %h4, %f1; st.global.b16 [%out], %h4;",
                            how, type),
                in);
            for (std::size_t i = 0; i < in.size(); ++i)
                expect(fmt::format("cvt.r{}.{}.f32", how, type), std::bit_cast<U>(in[i]), found[i],
                       format.rounded(in[i], how[0]));
        }
        const auto pairs = evaluate<U, float>(fmt::format("ld.global.f32 %f1, [%a]; cvt.rn.relu.{}x2.f32 "
                                                          "%r4, %f1, 0f40400000; st.global.b32 [%out], %r4;",
                                                          type),
                                              in);
        for (std::size_t i = 0; i < in.size(); ++i)
            expect("cvt.x2", std::bit_cast<U>(in[i]), pairs[i],
                   format.rounded(in[i] < 0 || in[i] == 0 ? 0 : in[i], 'n') << 16U | format.rounded(3, 'n'));
    }
    const auto found = evaluate<U, float>(
        "ld.global.f32 %f1, [%a]; cvt.rna.tf32.f32 %r4, %f1; st.global.b32 [%out], %r4;", in);
    for (std::size_t i = 0; i < in.size(); ++i) {
        const auto bits = std::bit_cast<U>(in[i]);
        const U wanted = std::isnan(in[i])   ? 0x7FFFFFFFU
                         : std::isinf(in[i]) ? bits
                                             : (bits + 0x1000U) & 0xFFFFE000U;
        expect("cvt.rna.tf32", bits, found[i], wanted);
    }
    // From 64 bits there is only one rounding.
    std::vector<UL> large;
    std::mt19937_64 random(4);
    for (int i = 0; i < 5000; ++i)
        large.push_back(random() >> (random() % 64));
    large.push_back((UL{1} << 62U) + (UL{1} << 54U));
    large.push_back((UL{1} << 62U) + (UL{1} << 54U) + 1);
    const auto brains = evaluate<H, UL>(
        "ld.global.u64 %rd1, [%a]; cvt.rn.bf16.u64 %h4, %rd1; st.global.b16 [%out], %h4;", large);
    for (std::size_t i = 0; i < large.size(); ++i) {
        UL kept = large[i];
        if (kept >> 53U != 0)
            kept = (kept >> 11U << 11U) |
                   ((kept & 0x7FFU) != 0 ? UL{1} << 11U : 0); // sticky: far below bf16's bits
        if (brains[i] != kBrain.rounded(static_cast<double>(kept), 'n'))
            fail(fmt::format("cvt.rn.bf16.u64 of {:#x}: {:#x}", large[i], brains[i]));
    }
}

template <class T>
std::vector<T> halves(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<T> list;
    const std::vector<U> corners = {0,      0x8000, 1,      0x8001, 0x3FF,  0x400,  0x3C00, 0xBC00,
                                    0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x3F80, 0x7F80, 0x7F7F};
    for (const U a : corners)
        for (const U b : corners)
            list.push_back(static_cast<T>(seed == 1 ? a : b));
    while (list.size() < 20000)
        list.push_back(static_cast<T>(random()));
    return list;
}

// The exact result in f64, rounded once: a product of halves is exact, and a sum is unless the parts are so
// far apart that the smaller only breaks ties, which the sticky bit keeps.
double exact_sum(double a, double b) {
    const double sum = a + b;
    const double back = sum - a;
    const double error = (a - (sum - back)) + (b - back);
    if (error == 0 || !std::isfinite(sum) || (std::bit_cast<UL>(sum) & 1U) != 0)
        return sum;
    return std::nextafter(sum, error > 0 ? INFINITY : -INFINITY);
}

void arithmetic(void **) {
    const auto a = halves<H>(1);
    const auto b = halves<H>(2);
    const auto c = halves<H>(3);
    for (const auto &[type, format] :
         {std::pair(std::string("f16"), kHalf), std::pair(std::string("bf16"), kBrain)}) {
        const auto run = [&](const std::string &instruction, const std::function<U(U, U, U)> &expected) {
            const auto found = evaluate<H, H>(
                "ld.global.b16 %h1, [%a]; ld.global.b16 %h2, [%b]; ld.global.b16 %h3, [%c];\n" + instruction +
                    "\nst.global.b16 [%out], %h4;",
                a, b, c);
            for (std::size_t i = 0; i < a.size(); ++i)
                if (const U wanted = expected(a[i], b[i], c[i]); found[i] != wanted)
                    fail(fmt::format("{} of {:#x} {:#x} {:#x}: {:#x}, not {:#x}", instruction, a[i], b[i],
                                     c[i], found[i], wanted));
        };
        const Format f = format;
        run(fmt::format("add.{} %h4, %h1, %h2;", type),
            [&](U x, U y, U) { return f.rounded(exact_sum(f.value(x), f.value(y)), 'n'); });
        run(fmt::format("sub.{} %h4, %h1, %h2;", type),
            [&](U x, U y, U) { return f.rounded(exact_sum(f.value(x), -f.value(y)), 'n'); });
        run(fmt::format("mul.{} %h4, %h1, %h2;", type),
            [&](U x, U y, U) { return f.rounded(f.value(x) * f.value(y), 'n'); });
        run(fmt::format("fma.rn.{} %h4, %h1, %h2, %h3;", type),
            [&](U x, U y, U z) { return f.rounded(exact_sum(f.value(x) * f.value(y), f.value(z)), 'n'); });
        run(fmt::format("fma.rn.relu.{} %h4, %h1, %h2, %h3;", type), [&](U x, U y, U z) {
            const U r = f.rounded(exact_sum(f.value(x) * f.value(y), f.value(z)), 'n');
            return (r & 0x8000U) != 0 ? 0U : r;
        });
        run(fmt::format("min.{} %h4, %h1, %h2;", type), [&](U x, U y, U) {
            if (f.nan(x))
                return f.nan(y) ? 0x7FFFU : y;
            if (f.nan(y))
                return x;
            const double p = f.value(x);
            const double q = f.value(y);
            return p == q ? ((x & 0x8000U) != 0 ? x : y) : p < q ? x : y;
        });
        run(fmt::format("max.NaN.{} %h4, %h1, %h2;", type), [&](U x, U y, U) {
            if (f.nan(x) || f.nan(y))
                return 0x7FFFU;
            const double p = f.value(x);
            const double q = f.value(y);
            return p == q ? ((x & 0x8000U) != 0 ? y : x) : p > q ? x : y;
        });
        run(fmt::format("setp.lt.{} %p1, %h1, %h2; selp.b16 %h4, %h1, %h2, %p1;", type),
            [&](U x, U y, U) { return f.value(x) < f.value(y) ? x : y; });
        run(fmt::format("set.gtu.{0}.{0} %h4, %h1, %h2;", type),
            [&](U x, U y, U) { return !(f.value(x) <= f.value(y)) ? f.rounded(1, 'n') : 0U; });
        run(fmt::format("neg.{0} %h5, %h1; abs.{0} %h6, %h2; xor.b16 %h4, %h5, %h6;", type),
            [](U x, U y, U) { return (x ^ 0x8000U) ^ (y & 0x7FFFU); });
    }
    const auto ftz = evaluate<H, H>("ld.global.b16 %h1, [%a]; ld.global.b16 %h2, [%b]; mul.ftz.f16 %h4, %h1, "
                                    "%h2; st.global.b16 [%out], %h4;",
                                    a, b);
    const auto flushed = [](U x) { return (x & 0x7C00U) == 0 ? x & 0x8000U : x; };
    for (std::size_t i = 0; i < a.size(); ++i)
        expect("mul.ftz.f16", a[i], ftz[i],
               flushed(kHalf.rounded(kHalf.value(flushed(a[i])) * kHalf.value(flushed(b[i])), 'n')));
}

void pairs(void **) {
    std::mt19937 random(5);
    std::vector<U> a(20000);
    std::vector<U> b(a.size());
    std::vector<U> c(a.size());
    for (auto *list : {&a, &b, &c})
        std::ranges::generate(*list, random);
    const auto each = [](U x, U y, U z, auto one) {
        return one(x & 0xFFFFU, y & 0xFFFFU, z & 0xFFFFU) | one(x >> 16U, y >> 16U, z >> 16U) << 16U;
    };
    const auto run = [&](const std::string &instruction, auto one) {
        const auto found =
            evaluate<U, U>("ld.global.b32 %r1, [%a]; ld.global.b32 %r2, [%b]; ld.global.b32 %r3, [%c];\n" +
                               instruction + "\nst.global.b32 [%out], %r4;",
                           a, b, c);
        for (std::size_t i = 0; i < a.size(); ++i)
            expect(instruction, a[i], found[i], each(a[i], b[i], c[i], one));
    };
    const Format &f = kHalf;
    const Format &g = kBrain;
    run("fma.rn.f16x2 %r4, %r1, %r2, %r3;",
        [&](U x, U y, U z) { return f.rounded(exact_sum(f.value(x) * f.value(y), f.value(z)), 'n'); });
    run("add.bf16x2 %r4, %r1, %r2;",
        [&](U x, U y, U) { return g.rounded(exact_sum(g.value(x), g.value(y)), 'n'); });
    run("mul.f16x2 %r4, %r1, %r2;", [&](U x, U y, U) { return f.rounded(f.value(x) * f.value(y), 'n'); });
    run("set.le.f16x2.f16x2 %r4, %r1, %r2;",
        [&](U x, U y, U) { return f.value(x) <= f.value(y) ? 0x3C00U : 0U; });
    run("set.lt.u32.f16x2 %r4, %r1, %r2;",
        [&](U x, U y, U) { return f.value(x) < f.value(y) ? 0xFFFFU : 0U; });
    run("setp.eq.bf16x2 %p1|%p2, %r1, %r1; selp.b32 %r5, 1, 0, %p1; selp.b32 %r6, 65536, 0, %p2; or.b32 %r4, "
        "%r5, %r6;",
        [&](U x, U, U) { return g.nan(x) ? 0U : 1U; });
}

void eight_bits(void **) {
    // e4m3 by its definition: 1.fff * 2^(e-7), no infinity, one NaN.
    const auto e4m3 = [](U bits) {
        const U magnitude = bits & 0x7FU;
        const double sign = (bits & 0x80U) != 0 ? -1 : 1;
        if (magnitude == 0x7FU)
            return static_cast<double>(NAN);
        return sign * (magnitude < 8
                           ? std::ldexp(magnitude, -9)
                           : std::ldexp(8 + (magnitude & 7U), static_cast<int>(magnitude >> 3U) - 10));
    };
    std::vector<U> bytes(65536);
    for (U i = 0; i < bytes.size(); ++i)
        bytes[i] = i;
    const auto halves_of = evaluate<U, U>(
        "ld.global.u16 %h1, [%a]; cvt.rn.f16x2.e4m3x2 %r4, %h1; st.global.b32 [%out], %r4;", bytes);
    for (U i = 0; i < bytes.size(); ++i) {
        expect("cvt.f16x2.e4m3x2", i, halves_of[i] & 0xFFFFU, kHalf.rounded(e4m3(i & 0xFFU), 'n'));
        expect("cvt.f16x2.e4m3x2", i, halves_of[i] >> 16U, kHalf.rounded(e4m3(i >> 8U), 'n'));
    }
    const auto nearest = [&](double x) {
        if (std::isnan(x))
            return 0x7FU;
        U best = 0;
        for (U i = 0; i < 0x7FU; ++i) {
            const double distance = std::fabs(e4m3(i) - std::fabs(x));
            const double shortest = std::fabs(e4m3(best) - std::fabs(x));
            if (distance < shortest || (distance == shortest && (i & 1U) == 0))
                best = i;
        }
        return best | (std::signbit(x) ? 0x80U : 0U);
    };
    std::vector<float> in = {0.F, -0.F,    448.F,    460.F,      1e9F,     -1e9F,
                             NAN, 0x1p-9F, 0x1p-10F, 0x1.8p-10F, 0x1.fp-7F};
    std::mt19937 random(6);
    while (in.size() < 3000)
        in.push_back(std::ldexp(static_cast<float>(static_cast<std::int32_t>(random())),
                                -24 - static_cast<int>(random() % 20)));
    const auto found = evaluate<U, float>("ld.global.f32 %f1, [%a]; cvt.rn.satfinite.e4m3x2.f32 %h4, %f1, "
                                          "0f3F800000; cvt.u32.u16 %r4, %h4; st.global.b32 [%out], %r4;",
                                          in);
    for (std::size_t i = 0; i < in.size(); ++i)
        expect("cvt.e4m3x2.f32", std::bit_cast<U>(in[i]), found[i], nearest(in[i]) << 8U | 0x38U);
    for (const char *wrong :
         {"cvt.rz.satfinite.e4m3x2.f32 %h4, %f1, %f2;", "cvt.rz.satfinite.e5m2x2.f16x2 %h4, %r1;"}) {
        Device device(elementwise(wrong));
        U *out = device.zeroed<U>(32);
        const singularity::softgpu::Fault fault =
            device.fault_of(device.launch("k", {1}, {32}, Arguments(out, out, out, out, 32U)),
                            singularity::softgpu::FaultKind::not_supported);
        expect_contains(fault.text, "cvt");
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(all_halves), cmocka_unit_test(rounding),
                                cmocka_unit_test(arithmetic), cmocka_unit_test(pairs),
                                cmocka_unit_test(eight_bits)};
    return cmocka_run_group_tests_name("softgpu-engine-halves", tests, nullptr, nullptr);
}
