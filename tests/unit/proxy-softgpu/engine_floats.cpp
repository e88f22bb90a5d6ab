// SPDX-License-Identifier: GPL-2.0-or-later
// f32 and f64: bits equal to the host's under the same rounding; approximations within what the ISA allows;
// conversions.
#include "engine_fixture.hpp"

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>

namespace {

using namespace singularity::softgpu::test;

using U = std::uint32_t;
using UL = std::uint64_t;
using SL = std::int64_t;

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, U, UL>;

template <class T>
std::vector<T> operands(unsigned seed) {
    using Limits = std::numeric_limits<T>;
    std::mt19937_64 random(seed);
    std::vector<T> list;
    const std::vector<T> corners = {T{0},
                                    -T{0},
                                    T{1},
                                    -T{1},
                                    T{3},
                                    T(0.5),
                                    Limits::min(),
                                    -Limits::min(),
                                    Limits::denorm_min(),
                                    -Limits::denorm_min(),
                                    Limits::max(),
                                    Limits::lowest(),
                                    Limits::infinity(),
                                    -Limits::infinity(),
                                    Limits::quiet_NaN(),
                                    Limits::min() / 4,
                                    T(1) + Limits::epsilon(),
                                    T(1.5),
                                    T(-2.5),
                                    T(2147483647.5)};
    for (const T a : corners)
        for (std::size_t i = 0; i < corners.size(); ++i)
            list.push_back(seed == 1   ? a
                           : seed == 2 ? corners[i]
                                       : corners[(i * 7 + list.size()) % corners.size()]);
    while (list.size() < 4000) {
        const UL raw = random();
        if (random() % 4 != 0) // near each other, so that sums cancel and rounding matters
            list.push_back(std::ldexp(static_cast<T>(static_cast<double>(static_cast<SL>(raw)) * 0x1p-63),
                                      static_cast<int>(random() % 12)));
        else
            list.push_back(std::bit_cast<T>(static_cast<Bits<T>>(raw)));
    }
    return list;
}

const std::pair<std::string, int> kRoundings[] = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

template <class T>
T flushed(T value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(T{0}, value) : value;
}

template <class T>
bool same(T found, T expected) {
    if (std::isnan(expected))
        return sizeof(T) == 4 ? std::bit_cast<Bits<T>>(found) == static_cast<Bits<T>>(0x7FFFFFFFU)
                              : std::isnan(found);
    return std::bit_cast<Bits<T>>(found) == std::bit_cast<Bits<T>>(expected);
}

template <class T>
std::string body(const std::string &instruction) {
    const std::string r = sizeof(T) == 4 ? "%f" : "%fd";
    return fmt::format("ld.global.f{0} {1}1, [%a]; ld.global.f{0} {1}2, [%b]; ld.global.f{0} {1}3, "
                       "[%c];\n{2}\nst.global.f{0} [%out], {1}4;\n",
                       8 * sizeof(T), r, instruction);
}

template <class T>
using Expected = std::function<T(T, T, T)>;

// The expectation is computed under the host's rounding mode; volatile keeps the compiler from doing it
// before.
template <class T>
void check(const std::string &instruction, int rounding, const Expected<T> &expected) {
    const auto a = operands<T>(1);
    const auto b = operands<T>(2);
    const auto c = operands<T>(3);
    const auto found = evaluate<T, T>(body<T>(instruction), a, b, c);
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::fesetround(rounding);
        const volatile T made = expected(a[i], b[i], c[i]);
        std::fesetround(FE_TONEAREST);
        const T wanted = made;
        if (!same(found[i], wanted))
            fail(fmt::format("{}\nof {:a} {:a} {:a}: {:a} ({:#x}), not {:a}", instruction, a[i], b[i], c[i],
                             found[i], std::bit_cast<Bits<T>>(found[i]), wanted));
    }
}

template <class T>
void arithmetic_of(const std::string &type, const std::string &r) {
    for (const auto &[name, rounding] : kRoundings) {
        const auto text = [&](const std::string &op, int sources) {
            std::string line = fmt::format("{}.{}.{} {}4", op, name, type, r);
            for (int i = 1; i <= sources; ++i)
                line += fmt::format(", {}{}", r, i);
            return line + ";";
        };
        check<T>(text("add", 2), rounding, [](T a, T b, T) {
            volatile T x = a;
            return x + b;
        });
        check<T>(text("sub", 2), rounding, [](T a, T b, T) {
            volatile T x = a;
            return x - b;
        });
        check<T>(text("mul", 2), rounding, [](T a, T b, T) {
            volatile T x = a;
            return x * b;
        });
        check<T>(text("div", 2), rounding, [](T a, T b, T) {
            volatile T x = a;
            return x / b;
        });
        check<T>(text("fma", 3), rounding, [](T a, T b, T c) {
            volatile T x = a;
            return std::fma(x, b, c);
        });
        check<T>(text("rcp", 1), rounding, [](T a, T, T) {
            volatile T x = a;
            return T{1} / x;
        });
        check<T>(text("sqrt", 1), rounding, [](T a, T, T) {
            volatile T x = a;
            return std::sqrt(x);
        });
    }
}

void arithmetic(void **) {
    arithmetic_of<float>("f32", "%f");
    arithmetic_of<double>("f64", "%fd");
}

void flushing_and_saturation(void **) {
    const auto saturated = [](float x) { return x > 0 ? std::min(x, 1.F) : 0.F; };
    check<float>("add.ftz.f32 %f4, %f1, %f2;", FE_TONEAREST,
                 [](float a, float b, float) { return flushed(flushed(a) + flushed(b)); });
    check<float>("mul.rz.ftz.f32 %f4, %f1, %f2;", FE_TOWARDZERO, [](float a, float b, float) {
        volatile float x = flushed(a);
        return flushed(x * flushed(b));
    });
    check<float>("fma.rn.ftz.f32 %f4, %f1, %f2, %f3;", FE_TONEAREST, [](float a, float b, float c) {
        return flushed(std::fma(flushed(a), flushed(b), flushed(c)));
    });
    check<float>("fma.rn.sat.f32 %f4, %f1, %f2, %f3;", FE_TONEAREST,
                 [=](float a, float b, float c) { return saturated(std::fma(a, b, c)); });
    check<float>("add.sat.f32 %f4, %f1, %f2;", FE_TONEAREST,
                 [=](float a, float b, float) { return saturated(a + b); });
    check<float>("abs.ftz.f32 %f5, %f1; add.f32 %f4, %f5, %f2;", FE_TONEAREST,
                 [](float a, float b, float) { return std::fabs(flushed(a)) + b; });
    check<float>("neg.f32 %f5, %f1; add.f32 %f4, %f5, %f2;", FE_TONEAREST,
                 [](float a, float b, float) { return -a + b; });
    check<float>("copysign.f32 %f5, %f1, %f2; add.f32 %f4, %f5, 0f80000000;", FE_TONEAREST,
                 [](float a, float b, float) { return std::copysign(b, a) + -0.F; });
}

template <class T>
T least(T a, T b) {
    if (std::isnan(a))
        return b;
    if (std::isnan(b) || a == b)
        return a == b && std::signbit(b) ? b : a;
    return a < b ? a : b;
}
template <class T>
T greatest(T a, T b) {
    if (std::isnan(a))
        return b;
    if (std::isnan(b) || a == b)
        return a == b && !std::signbit(b) ? b : a;
    return a > b ? a : b;
}

void extremes(void **) {
    check<float>("min.f32 %f4, %f1, %f2;", FE_TONEAREST, [](float a, float b, float) { return least(a, b); });
    check<float>("max.f32 %f4, %f1, %f2;", FE_TONEAREST,
                 [](float a, float b, float) { return greatest(a, b); });
    check<float>("max.ftz.f32 %f4, %f1, %f2;", FE_TONEAREST,
                 [](float a, float b, float) { return greatest(flushed(a), flushed(b)); });
    check<float>("min.NaN.f32 %f4, %f1, %f2;", FE_TONEAREST, [](float a, float b, float) {
        return std::isnan(a) ? a : std::isnan(b) ? b : least(a, b);
    });
    check<float>("max.xorsign.abs.f32 %f4, %f1, %f2; @%p1 mov.f32 %f4, %f4;", FE_TONEAREST,
                 [](float a, float b, float) {
                     const float m = greatest(std::fabs(a), std::fabs(b));
                     return std::isnan(m)
                                ? m
                                : std::copysign(m, (std::signbit(a) != std::signbit(b)) ? -1.F : 1.F);
                 });
    check<float>("min.f32 %f4, %f1, %f2, %f3;", FE_TONEAREST,
                 [](float a, float b, float c) { return least(least(a, b), c); });
    check<double>("min.f64 %fd4, %fd1, %fd2;", FE_TONEAREST,
                  [](double a, double b, double) { return least(a, b); });
    check<double>("max.f64 %fd4, %fd1, %fd2;", FE_TONEAREST,
                  [](double a, double b, double) { return greatest(a, b); });
}

template <class T>
void comparisons_of(const std::string &type, const std::string &r) {
    const std::pair<std::string, std::function<bool(T, T)>> all[] = {
        {"eq", [](T a, T b) { return a == b; }},
        {"ne", [](T a, T b) { return a < b || a > b; }},
        {"lt", [](T a, T b) { return a < b; }},
        {"le", [](T a, T b) { return a <= b; }},
        {"gt", [](T a, T b) { return a > b; }},
        {"ge", [](T a, T b) { return a >= b; }},
        {"equ", [](T a, T b) { return !(a < b || a > b); }},
        {"neu", [](T a, T b) { return a != b; }},
        {"ltu", [](T a, T b) { return !(a >= b); }},
        {"leu", [](T a, T b) { return !(a > b); }},
        {"gtu", [](T a, T b) { return !(a <= b); }},
        {"geu", [](T a, T b) { return !(a < b); }},
        {"num", [](T a, T b) { return !std::isnan(a) && !std::isnan(b); }},
        {"nan", [](T a, T b) { return std::isnan(a) || std::isnan(b); }}};
    for (const auto &[name, compare] : all)
        check<T>(fmt::format("setp.{0}.{1} %p1, {2}1, {2}2; mov.{1} {2}4, 0{3}; @%p1 mov.{1} {2}4, 0{4};",
                             name, type, r, sizeof(T) == 4 ? "f00000000" : "d0000000000000000",
                             sizeof(T) == 4 ? "f3F800000" : "d3FF0000000000000"),
                 FE_TONEAREST, [&](T a, T b, T) { return compare(a, b) ? T{1} : T{0}; });
    const std::pair<std::string, std::function<bool(T)>> tests[] = {
        {"finite", [](T a) { return std::isfinite(a); }},
        {"infinite", [](T a) { return std::isinf(a); }},
        {"number", [](T a) { return !std::isnan(a); }},
        {"notanumber", [](T a) { return std::isnan(a); }},
        {"normal", [](T a) { return std::isnormal(a); }},
        {"subnormal", [](T a) { return std::fpclassify(a) == FP_SUBNORMAL; }}};
    for (const auto &[name, test] : tests)
        check<T>(fmt::format("testp.{}.{} %p1, {}1; selp.{} {}4, 0{}, 0{}, %p1;", name, type, r, type, r,
                             sizeof(T) == 4 ? "f3F800000" : "d3FF0000000000000",
                             sizeof(T) == 4 ? "f00000000" : "d0000000000000000"),
                 FE_TONEAREST, [&](T a, T, T) { return test(a) ? T{1} : T{0}; });
}
void comparisons(void **) {
    comparisons_of<float>("f32", "%f");
    comparisons_of<double>("f64", "%fd");
    check<float>("setp.gt.ftz.f32 %p1, %f1, 0f00000000; selp.f32 %f4, 0f3F800000, 0f00000000, %p1;",
                 FE_TONEAREST, [](float a, float, float) { return flushed(a) > 0 ? 1.F : 0.F; });
}

// The bounds of the PTX ISA, of which the engine keeps a small part: half a unit of the last place and a bit.
void approximations(void **) {
    struct Row {
        std::string instruction;
        std::function<double(double)> exact;
        double low, high;
        double absolute; // 0: relative to the result
    };
    const Row rows[] = {
        {"ex2.approx.f32 %f4, %f1;", [](double x) { return std::exp2(x); }, -149, 128, 0},
        {"lg2.approx.f32 %f4, %f1;", [](double x) { return std::log2(x); }, 1e-42, 1e30, 0},
        {"sin.approx.f32 %f4, %f1;", [](double x) { return std::sin(x); }, -1000, 1000, 1e-7},
        {"cos.approx.f32 %f4, %f1;", [](double x) { return std::cos(x); }, -1000, 1000, 1e-7},
        {"tanh.approx.f32 %f4, %f1;", [](double x) { return std::tanh(x); }, -12, 12, 0},
        {"rsqrt.approx.f32 %f4, %f1;", [](double x) { return 1 / std::sqrt(x); }, 1e-40, 1e38, 0},
        {"rcp.approx.f32 %f4, %f1;", [](double x) { return 1 / x; }, 1e-37, 1e37, 0},
        {"sqrt.approx.f32 %f4, %f1;", [](double x) { return std::sqrt(x); }, 0, 1e38, 0}};
    std::mt19937 random(1);
    for (const Row &row : rows) {
        std::vector<float> in(20000);
        for (float &x : in) {
            const double unit = static_cast<double>(random()) / 4294967296.;
            x = row.low > 0 ? static_cast<float>(row.low * std::pow(row.high / row.low, unit))
                            : static_cast<float>(row.low + (row.high - row.low) * unit);
        }
        const auto found = evaluate<float, float>(body<float>(row.instruction), in);
        for (std::size_t i = 0; i < in.size(); ++i) {
            const double exact = row.exact(in[i]);
            const double allowed =
                row.absolute != 0 ? row.absolute : std::max(std::fabs(exact) * 0x1.02p-24, 0x1p-150);
            if (std::fabs(found[i] - exact) > allowed)
                fail(fmt::format("{} of {:a} is {:a}, not {:a}", row.instruction, in[i], found[i], exact));
        }
    }
    const float inf = std::numeric_limits<float>::infinity();
    const auto special = [&](const std::string &instruction, float in, float expected) {
        const auto found = evaluate<float, float>(body<float>(instruction), std::vector<float>{in});
        if (!same(found[0], expected))
            fail(fmt::format("{} of {} is {}, not {}", instruction, in, found[0], expected));
    };
    special("ex2.approx.f32 %f4, %f1;", -inf, 0.F);
    special("ex2.approx.f32 %f4, %f1;", inf, inf);
    special("ex2.approx.ftz.f32 %f4, %f1;", -127.F, 0.F);
    special("lg2.approx.f32 %f4, %f1;", -1.F, NAN);
    special("lg2.approx.f32 %f4, %f1;", -0.F, -inf);
    special("lg2.approx.f32 %f4, %f1;", 1.F, 0.F);
    special("rsqrt.approx.f32 %f4, %f1;", -0.F, -inf);
    special("rsqrt.approx.f32 %f4, %f1;", inf, 0.F);
    special("rcp.approx.f32 %f4, %f1;", -inf, -0.F);
    special("sin.approx.f32 %f4, %f1;", inf, NAN);
    special("cos.approx.f32 %f4, %f1;", 0.F, 1.F);
    special("tanh.approx.f32 %f4, %f1;", -inf, -1.F);
}

template <class I, class T>
I to_integer(T value, int rounding) {
    const auto x = static_cast<double>(value);
    const double whole = rounding == FE_TONEAREST    ? std::rint(x)
                         : rounding == FE_TOWARDZERO ? std::trunc(x)
                         : rounding == FE_DOWNWARD   ? std::floor(x)
                                                     : std::ceil(x);
    using Limits = std::numeric_limits<I>;
    if (std::isnan(whole))
        return sizeof(I) == 8 ? static_cast<I>(UL{1} << 63U) : I{0};
    if (whole <= static_cast<double>(Limits::min()))
        return Limits::min();
    if (whole >= static_cast<double>(Limits::max()))
        return Limits::max();
    return static_cast<I>(whole);
}

template <class I, class T>
void integers_and(const std::string &integer, const std::string &type) {
    const std::string r = sizeof(T) == 4 ? "%f" : "%fd";
    const std::string i = sizeof(I) == 8 ? "%rd" : sizeof(I) == 4 ? "%r" : "%h";
    const auto values = operands<T>(1);
    const std::pair<std::string, int> whole[] = {
        {"rni", FE_TONEAREST}, {"rzi", FE_TOWARDZERO}, {"rmi", FE_DOWNWARD}, {"rpi", FE_UPWARD}};
    for (const auto &[name, rounding] : whole) {
        const auto found = evaluate<I, T>(
            fmt::format("ld.global.{0} {1}1, [%a]; cvt.{2}.{3}.{0} {4}4, {1}1; st.global.{3} [%out], {4}4;",
                        type, r, name, integer, i),
            values);
        for (std::size_t k = 0; k < values.size(); ++k)
            if (const I wanted = to_integer<I>(values[k], rounding); found[k] != wanted)
                fail(fmt::format("cvt.{}.{}.{} of {:a}: {}, not {}", name, integer, type, values[k], found[k],
                                 wanted));
    }
    std::mt19937_64 random(9);
    std::vector<I> integers = {0, 1, std::numeric_limits<I>::max(), std::numeric_limits<I>::min()};
    while (integers.size() < 4000)
        integers.push_back(static_cast<I>(random() >> (random() % 64)));
    for (const auto &[name, rounding] : kRoundings) {
        const auto found = evaluate<T, I>(
            fmt::format("ld.global.{0} {1}1, [%a]; cvt.{2}.{3}.{0} {4}4, {1}1; st.global.{3} [%out], {4}4;",
                        integer, i, name, type, r),
            integers);
        for (std::size_t k = 0; k < integers.size(); ++k) {
            std::fesetround(rounding);
            volatile I x = integers[k];
            const volatile T wanted = static_cast<T>(x);
            std::fesetround(FE_TONEAREST);
            if (!same<T>(found[k], wanted))
                fail(fmt::format("cvt.{}.{}.{} of {}: {:a}, not {:a}", name, type, integer, integers[k],
                                 found[k], T{wanted}));
        }
    }
}

void conversions(void **) {
    integers_and<std::int16_t, float>("s16", "f32");
    integers_and<std::uint16_t, double>("u16", "f64");
    integers_and<std::int32_t, float>("s32", "f32");
    integers_and<U, float>("u32", "f32");
    integers_and<SL, float>("s64", "f32");
    integers_and<UL, float>("u64", "f32");
    integers_and<std::int32_t, double>("s32", "f64");
    integers_and<U, double>("u32", "f64");
    integers_and<SL, double>("s64", "f64");
    integers_and<UL, double>("u64", "f64");
    // Between f32 and f64, and to whole numbers.
    const auto wide = operands<double>(1);
    for (const auto &[name, rounding] : kRoundings) {
        const auto found = evaluate<float, double>(
            fmt::format("ld.global.f64 %fd1, [%a]; cvt.{}.f32.f64 %f4, %fd1; st.global.f32 [%out], %f4;",
                        name),
            wide);
        for (std::size_t k = 0; k < wide.size(); ++k) {
            std::fesetround(rounding);
            volatile double x = wide[k];
            const volatile float wanted = static_cast<float>(x);
            std::fesetround(FE_TONEAREST);
            if (!same<float>(found[k], wanted))
                fail(fmt::format("cvt.{}.f32.f64 of {:a}: {:a}, not {:a}", name, wide[k], found[k],
                                 float{wanted}));
        }
    }
    check<float>("cvt.f64.f32 %fd1, %f1; cvt.rn.f32.f64 %f4, %fd1;", FE_TONEAREST,
                 [](float a, float, float) { return a; });
    check<float>("cvt.rni.f32.f32 %f4, %f1;", FE_TONEAREST,
                 [](float a, float, float) { return std::rint(a); });
    check<float>("cvt.rpi.ftz.f32.f32 %f4, %f1;", FE_TONEAREST,
                 [](float a, float, float) { return std::ceil(flushed(a)); });
    check<float>("cvt.sat.f32.f32 %f4, %f1;", FE_TONEAREST,
                 [](float a, float, float) { return a > 0 ? std::min(a, 1.F) : 0.F; });
    check<double>("cvt.rmi.f64.f64 %fd4, %fd1;", FE_TONEAREST,
                  [](double a, double, double) { return std::floor(a); });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(arithmetic),     cmocka_unit_test(flushing_and_saturation),
                                cmocka_unit_test(extremes),       cmocka_unit_test(comparisons),
                                cmocka_unit_test(approximations), cmocka_unit_test(conversions)};
    return cmocka_run_group_tests_name("softgpu-engine-floats", tests, nullptr, nullptr);
}
