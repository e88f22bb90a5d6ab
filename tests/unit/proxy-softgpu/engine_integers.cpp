// SPDX-License-Identifier: GPL-2.0-or-later
// Integer, bit and comparison instructions against the same computed on the host.
#include "assembler.hpp"
#include "engine/code.hpp"
#include "engine_fixture.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>

namespace {

using namespace singularity::softgpu::test;

using U = std::uint32_t;
using S = std::int32_t;
using UL = std::uint64_t;
using SL = std::int64_t;
__extension__ using Wide = __int128;
__extension__ using UWide = unsigned __int128;

template <class T>
std::vector<T> operands(unsigned seed) {
    std::mt19937_64 random(seed);
    using Limits = std::numeric_limits<std::make_signed_t<T>>;
    std::vector<T> list;
    const std::vector<SL> corners = {0,
                                     1,
                                     -1,
                                     2,
                                     7,
                                     8,
                                     31,
                                     32,
                                     33,
                                     63,
                                     64,
                                     255,
                                     256,
                                     0xFFFF,
                                     0x8000,
                                     Limits::min(),
                                     Limits::max(),
                                     Limits::min() + 1};
    for (const SL corner : corners)
        list.push_back(static_cast<T>(corner));
    while (list.size() < 3000) {
        const unsigned shift = static_cast<unsigned>(random() % (8 * sizeof(T)));
        list.push_back(static_cast<T>(random() >> (64 - 8 * sizeof(T)) >> (random() % 2 != 0 ? shift : 0)));
    }
    std::shuffle(list.begin() + (seed == 1 ? 0 : 1), list.end(), random);
    return list;
}

// Loads a, b, c of T into registers named by size, runs the instruction, stores d.
template <class Out, class In>
std::string body(const std::string &instruction) {
    const auto reg = [](std::size_t size) { return size == 8 ? "%rd" : size == 4 ? "%r" : "%h"; };
    const std::string in = reg(sizeof(In));
    const std::string out = reg(sizeof(Out));
    std::string text =
        fmt::format("ld.global.b{0} {1}1, [%a]; ld.global.b{0} {1}2, [%b]; ld.global.b{0} {1}3, [%c];\n",
                    8 * sizeof(In), in);
    text += instruction + "\n";
    return text + fmt::format("st.global.b{} [%out], {}4;\n", 8 * sizeof(Out), out);
}

template <class Out, class In>
void check(const std::string &instruction, const std::function<Out(In, In, In)> &expected) {
    const auto a = operands<In>(1);
    const auto b = operands<In>(2);
    const auto c = operands<In>(3);
    const auto found = evaluate<Out, In>(body<Out, In>(instruction), a, b, c);
    for (std::size_t i = 0; i < a.size(); ++i)
        if (const Out wanted = expected(a[i], b[i], c[i]); found[i] != wanted)
            fail(fmt::format("{}\nof {:#x}, {:#x}, {:#x}: {:#x}, not {:#x}", instruction, a[i], b[i], c[i],
                             found[i], wanted));
}

template <class T>
void arithmetic_of(const std::string &type, const std::string &r) {
    using Signed = std::make_signed_t<T>;
    using Unsigned = std::make_unsigned_t<T>;
    constexpr unsigned bits = 8 * sizeof(T);
    const auto named = [&](const std::string &head) { return head + "." + type + " "; };
    const std::string abc = fmt::format("{0}4, {0}1, {0}2, {0}3;", r);
    const std::string ab = fmt::format("{0}4, {0}1, {0}2;", r);
    const std::string only = fmt::format("{0}4, {0}1;", r);
    const auto wrap = [](auto value) { return static_cast<T>(value); };
    check<T, T>(named("add") + ab,
                [=](T a, T b, T) { return wrap(static_cast<UL>(a) + static_cast<UL>(b)); });
    check<T, T>(named("sub") + ab,
                [=](T a, T b, T) { return wrap(static_cast<UL>(a) - static_cast<UL>(b)); });
    check<T, T>(named("mul.lo") + ab,
                [=](T a, T b, T) { return wrap(static_cast<UL>(a) * static_cast<UL>(b)); });
    const auto high = [](T a, T b) {
        if constexpr (std::is_signed_v<T>)
            return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> bits);
        else
            return static_cast<T>((static_cast<UWide>(a) * static_cast<UWide>(b)) >> bits);
    };
    check<T, T>(named("mul.hi") + ab, [=](T a, T b, T) { return high(a, b); });
    check<T, T>(named("mad.lo") + abc, [=](T a, T b, T c) {
        return wrap(static_cast<UL>(a) * static_cast<UL>(b) + static_cast<UL>(c));
    });
    check<T, T>(named("mad.hi") + abc,
                [=](T a, T b, T c) { return wrap(static_cast<UL>(high(a, b)) + static_cast<UL>(c)); });
    check<T, T>(named("div") + ab, [=](T a, T b, T) {
        if (b == 0)
            return static_cast<T>(-1);
        if (std::is_signed_v<T> && b == static_cast<T>(-1))
            return wrap(0 - static_cast<UL>(a));
        return wrap(a / b);
    });
    check<T, T>(named("rem") + ab, [=](T a, T b, T) {
        if (b == 0)
            return a;
        if (std::is_signed_v<T> && b == static_cast<T>(-1))
            return T{0};
        return wrap(a % b);
    });
    check<T, T>(named("min") + ab, [](T a, T b, T) { return std::min(a, b); });
    check<T, T>(named("max") + ab, [](T a, T b, T) { return std::max(a, b); });
    check<T, T>(named("sad") + abc, [=](T a, T b, T c) {
        return wrap(static_cast<UL>(c) + (a < b ? static_cast<UL>(b) - static_cast<UL>(a)
                                                : static_cast<UL>(a) - static_cast<UL>(b)));
    });
    if constexpr (std::is_signed_v<T>) {
        check<T, T>(named("neg") + only, [=](T a, T, T) { return wrap(0 - static_cast<UL>(a)); });
        check<T, T>(named("abs") + only,
                    [=](T a, T, T) { return wrap(a < 0 ? 0 - static_cast<UL>(a) : static_cast<UL>(a)); });
    }
    const std::string shift = fmt::format("{{ .reg .b32 %s; cvt.u32.u{} %s, {}2; ", bits, r);
    const auto shift_text = [&](const std::string &op) {
        return shift + op + fmt::format(" {0}4, {0}1, %s; }}", r);
    };
    check<T, T>(shift_text("shl.b" + std::to_string(bits)), [](T a, T b, T) {
        const U by = static_cast<U>(static_cast<Unsigned>(b));
        return by >= bits ? T{0} : static_cast<T>(static_cast<Unsigned>(a) << by);
    });
    check<T, T>(shift_text(named("shr")), [](T a, T b, T) {
        const U by = static_cast<U>(static_cast<Unsigned>(b));
        if (by >= bits)
            return static_cast<T>(std::is_signed_v<T> && static_cast<Signed>(a) < 0 ? -1 : 0);
        return static_cast<T>(a >> by);
    });
    // Every comparison, as a value.
    const std::pair<std::string, std::function<bool(T, T)>> comparisons[] = {
        {"eq", std::equal_to<T>()},   {"ne", std::not_equal_to<T>()}, {"lt", std::less<T>()},
        {"le", std::less_equal<T>()}, {"gt", std::greater<T>()},      {"ge", std::greater_equal<T>()}};
    for (const auto &[name, compare] : comparisons) {
        check<U, T>(
            fmt::format("setp.{}.{} %p1|%p2, {}1, {}2; selp.u32 %r4, 1, 0, %p1; @%p2 or.b32 %r4, %r4, 2;",
                        name, type, r, r),
            [&](T a, T b, T) { return compare(a, b) ? 1U : 2U; });
        check<U, T>(fmt::format("setp.lt.{1} %p3, {2}2, {2}3; setp.{0}.xor.{1} %p1, {2}1, {2}2, %p3; "
                                "selp.u32 %r4, 1, 0, %p1;",
                                name, type, r),
                    [&](T a, T b, T c) { return compare(a, b) != (b < c) ? 1U : 0U; });
        check<U, T>(fmt::format("set.{}.u32.{} %r4, {}1, {}2;", name, type, r, r),
                    [&](T a, T b, T) { return compare(a, b) ? UINT32_MAX : 0U; });
    }
}

void arithmetic(void **) {
    arithmetic_of<std::uint16_t>("u16", "%h");
    arithmetic_of<std::int16_t>("s16", "%h");
    arithmetic_of<U>("u32", "%r");
    arithmetic_of<S>("s32", "%r");
    arithmetic_of<UL>("u64", "%rd");
    arithmetic_of<SL>("s64", "%rd");
}

void wide_and_saturated(void **) {
    check<UL, U>("mul.wide.u32 %rd4, %r1, %r2;", [](U a, U b, U) { return UL{a} * b; });
    check<UL, U>("mul.wide.s32 %rd4, %r1, %r2;",
                 [](U a, U b, U) { return static_cast<UL>(SL{std::bit_cast<S>(a)} * std::bit_cast<S>(b)); });
    check<UL, U>("cvt.s64.s32 %rd5, %r3; mad.wide.s32 %rd4, %r1, %r2, %rd5;", [](U a, U b, U c) {
        return static_cast<UL>(SL{std::bit_cast<S>(a)} * std::bit_cast<S>(b)) +
               static_cast<UL>(SL{std::bit_cast<S>(c)});
    });
    check<U, std::uint16_t>(
        "mul.wide.s16 %r4, %h1, %h2;", [](std::uint16_t a, std::uint16_t b, std::uint16_t) {
            return static_cast<U>(S{std::bit_cast<std::int16_t>(a)} * std::bit_cast<std::int16_t>(b));
        });
    const auto saturate = [](SL value) {
        return static_cast<U>(std::clamp<SL>(value, INT32_MIN, INT32_MAX));
    };
    check<U, U>("add.sat.s32 %r4, %r1, %r2;",
                [=](U a, U b, U) { return saturate(SL{std::bit_cast<S>(a)} + std::bit_cast<S>(b)); });
    check<U, U>("sub.sat.s32 %r4, %r1, %r2;",
                [=](U a, U b, U) { return saturate(SL{std::bit_cast<S>(a)} - std::bit_cast<S>(b)); });
    check<U, U>("mul24.lo.u32 %r4, %r1, %r2;",
                [](U a, U b, U) { return static_cast<U>(UL{a & 0xFFFFFF} * (b & 0xFFFFFF)); });
    check<U, U>("mul24.hi.s32 %r4, %r1, %r2;", [](U a, U b, U) {
        const auto low24 = [](U x) { return SL{std::bit_cast<S>(x << 8U) >> 8}; };
        return static_cast<U>((low24(a) * low24(b)) >> 16);
    });
}

// Sums of 128 bits and products of 64 by carries.
void carries(void **) {
    check<UL, UL>("add.cc.u64 %rd5, %rd1, %rd2; addc.u64 %rd4, %rd3, 0;",
                  [](UL a, UL b, UL c) { return c + (a + b < a ? 1 : 0); });
    check<UL, UL>("sub.cc.u64 %rd5, %rd1, %rd2; subc.cc.u64 %rd6, %rd3, %rd1; subc.u64 %rd4, 0, 0;",
                  [](UL a, UL b, UL c) {
                      const UWide left = (static_cast<UWide>(c) << 64U) + a;
                      const UWide right = (static_cast<UWide>(a) << 64U) + b;
                      return left < right ? ~UL{0} : 0;
                  });
    check<UL, UL>(
        "{ .reg .b32 %al, %ah, %bl, %bh, %x, %y; mov.b64 {%al, %ah}, %rd1; mov.b64 {%bl, %bh}, %rd2;\n"
        "mul.lo.u32 %x, %al, %bl; mul.hi.u32 %y, %al, %bl; mad.lo.u32 %y, %al, %bh, %y; mad.lo.u32 %y, %ah, "
        "%bl, %y;\n"
        "mov.b64 %rd4, {%x, %y}; }",
        [](UL a, UL b, UL) { return a * b; });
    check<U, U>("mad.lo.cc.u32 %r5, %r1, %r2, %r3; madc.hi.u32 %r4, %r1, %r2, 7;",
                [](U a, U b, U c) { return static_cast<U>((UL{a} * b + c) >> 32U) + 7; });
    check<U, U>("mad.lo.cc.u32 %r5, %r1, %r2, %r3; madc.hi.cc.u32 %r6, %r1, %r2, %r3; addc.u32 %r4, 0, 0;",
                [](U a, U b, U c) {
                    const UL low = UL{static_cast<U>(a * b)} + c;
                    return static_cast<U>((((UL{a} * b) >> 32U) + c + (low >> 32U)) >> 32U);
                });
}

void bits(void **) {
    check<U, U>("popc.b32 %r4, %r1;", [](U a, U, U) { return static_cast<U>(std::popcount(a)); });
    check<U, UL>("popc.b64 %r4, %rd1;", [](UL a, UL, UL) { return static_cast<U>(std::popcount(a)); });
    check<U, U>("clz.b32 %r4, %r1;", [](U a, U, U) { return static_cast<U>(std::countl_zero(a)); });
    check<U, UL>("clz.b64 %r4, %rd1;", [](UL a, UL, UL) { return static_cast<U>(std::countl_zero(a)); });
    check<U, U>("brev.b32 %r5, %r1; brev.b32 %r4, %r5; xor.b32 %r4, %r4, %r5;", [](U a, U, U) {
        U reversed = 0;
        for (unsigned i = 0; i < 32; ++i)
            reversed |= ((a >> i) & 1U) << (31 - i);
        return reversed ^ a;
    });
    check<UL, UL>("brev.b64 %rd4, %rd1;", [](UL a, UL, UL) {
        UL reversed = 0;
        for (unsigned i = 0; i < 64; ++i)
            reversed |= ((a >> i) & 1U) << (63 - i);
        return reversed;
    });
    check<U, U>("bfind.u32 %r4, %r1;",
                [](U a, U, U) { return a == 0 ? UINT32_MAX : static_cast<U>(31 - std::countl_zero(a)); });
    check<U, U>("bfind.shiftamt.s32 %r4, %r1;", [](U a, U, U) {
        const U x = (a >> 31U) != 0 ? ~a : a;
        return x == 0 ? UINT32_MAX : static_cast<U>(std::countl_zero(x));
    });
    // The manual's own description of bfe and bfi, bit by bit.
    const auto extract = [](auto a, U b, U c, bool is_signed) {
        using T = decltype(a);
        const U msb = 8 * sizeof(T) - 1;
        const U pos = b & 0xFFU;
        const U len = c & 0xFFU;
        const T sbit = !is_signed || len == 0 ? T{0} : (a >> std::min(pos + len - 1, msb)) & 1U;
        T d = 0;
        for (U i = 0; i <= msb; ++i)
            d |= (i < len && pos + i <= msb ? (a >> (pos + i)) & T{1} : sbit) << i;
        return d;
    };
    check<U, U>("and.b32 %r5, %r2, 63; and.b32 %r6, %r3, 63; bfe.u32 %r4, %r1, %r5, %r6;",
                [=](U a, U b, U c) { return extract(a, b & 63, c & 63, false); });
    check<U, U>("bfe.s32 %r4, %r1, %r2, %r3;", [=](U a, U b, U c) { return extract(a, b, c, true); });
    check<UL, UL>("cvt.u32.u64 %r2, %rd2; cvt.u32.u64 %r3, %rd3; and.b32 %r2, %r2, 127; and.b32 %r3, %r3, "
                  "127; bfe.s64 %rd4, %rd1, %r2, %r3;",
                  [=](UL a, UL b, UL c) { return extract(a, b & 127, c & 127, true); });
    const auto insert = [](auto a, auto b, U c, U d) {
        using T = decltype(a);
        const U msb = 8 * sizeof(T) - 1;
        const U pos = c & 0xFFU;
        const U len = d & 0xFFU;
        T f = b;
        for (U i = 0; i < len && pos + i <= msb; ++i)
            f = (f & ~(T{1} << (pos + i))) | (((a >> i) & T{1}) << (pos + i));
        return f;
    };
    check<U, U>("and.b32 %r5, %r3, 63; bfi.b32 %r4, %r1, %r2, %r5, 9;",
                [=](U a, U b, U c) { return insert(a, b, c & 63, 9); });
    check<UL, UL>("cvt.u32.u64 %r3, %rd3; and.b32 %r5, %r3, 15; bfi.b64 %rd4, %rd1, %rd2, %r5, %r3;",
                  [=](UL a, UL b, UL c) { return insert(a, b, static_cast<U>(c) & 15, static_cast<U>(c)); });
    for (unsigned table : {0x80U, 0xFEU, 0x96U, 0xCAU, 0x01U, 0xE8U})
        check<U, U>(fmt::format("lop3.b32 %r4, %r1, %r2, %r3, {};", table), [=](U a, U b, U c) {
            U d = 0;
            for (unsigned i = 0; i < 32; ++i)
                d |= ((table >> (4 * ((a >> i) & 1) + 2 * ((b >> i) & 1) + ((c >> i) & 1))) & 1U) << i;
            return d;
        });
    check<U, U>("lop3.or.b32 %r5|%p1, %r1, %r2, %r3, 128, 0; selp.u32 %r4, %r5, 77, %p1;",
                [](U a, U b, U c) { return (a & b & c) != 0 ? a & b & c : 77U; });
    check<U, U>("shf.l.wrap.b32 %r4, %r1, %r2, %r3;",
                [](U a, U b, U c) { return static_cast<U>(((UL{b} << 32U | a) << (c & 31U)) >> 32U); });
    check<U, U>("shf.r.wrap.b32 %r4, %r1, %r2, %r3;",
                [](U a, U b, U c) { return static_cast<U>((UL{b} << 32U | a) >> (c & 31U)); });
    check<U, U>("shf.l.clamp.b32 %r4, %r1, %r2, %r3;",
                [](U a, U b, U c) { return c >= 32 ? a : static_cast<U>(((UL{b} << 32U | a) << c) >> 32U); });
    check<U, U>("shf.r.clamp.b32 %r4, %r1, %r2, %r3;",
                [](U a, U b, U c) { return c >= 32 ? b : static_cast<U>((UL{b} << 32U | a) >> c); });
    check<U, U>("prmt.b32 %r4, %r1, %r2, %r3;", [](U a, U b, U c) {
        const UL pair = UL{b} << 32U | a;
        U d = 0;
        for (unsigned k = 0; k < 4; ++k) {
            const U selector = (c >> (4 * k)) & 15U;
            const U byte = (pair >> (8 * (selector & 7U))) & 0xFFU;
            d |= ((selector & 8U) != 0 ? ((byte & 0x80U) != 0 ? 0xFFU : 0U) : byte) << (8 * k);
        }
        return d;
    });
    check<U, U>("prmt.b32.f4e %r4, %r1, %r2, %r3;",
                [](U a, U b, U c) { return static_cast<U>((UL{b} << 32U | a) >> (8 * (c & 3U))); });
    check<U, U>("prmt.b32.rc16 %r4, %r1, %r2, %r3;", [](U a, U, U c) {
        const U half = (a >> (16 * (c & 1U))) & 0xFFFFU;
        return half | half << 16U;
    });
    check<U, U>("cnot.b32 %r4, %r1;", [](U a, U, U) { return a == 0 ? 1U : 0U; });
    check<U, U>("not.b32 %r5, %r1; and.b32 %r5, %r5, %r2; or.b32 %r5, %r5, %r3; xor.b32 %r4, %r5, -5;",
                [](U a, U b, U c) { return ((~a & b) | c) ^ static_cast<U>(-5); });
    check<U, U>("and.b32 %r5, %r2, 31; fns.b32 %r4, %r1, %r5, 2;", [](U a, U b, U) {
        int count = 2;
        for (U at = b & 31U; at < 32; ++at)
            if (((a >> at) & 1U) != 0 && --count == 0)
                return at;
        return UINT32_MAX;
    });
    check<U, U>("slct.u32.s32 %r4, %r1, %r2, %r3;",
                [](U a, U b, U c) { return std::bit_cast<S>(c) >= 0 ? a : b; });
    check<U, U>("bmsk.clamp.b32 %r4, %r1, %r2;", [](U a, U b, U) {
        const U at = std::min(a, 32U);
        return static_cast<U>(((UL{1} << std::min(b, 32U)) - 1) << at);
    });
}

void packed_integers(void **) {
    const auto bytes = [](U word, unsigned k, bool is_signed) {
        return is_signed ? S{std::bit_cast<std::int8_t>(static_cast<std::uint8_t>(word >> (8 * k)))}
                         : static_cast<S>((word >> (8 * k)) & 0xFFU);
    };
    const auto halves = [](U word, unsigned k, bool is_signed) {
        return is_signed ? S{std::bit_cast<std::int16_t>(static_cast<std::uint16_t>(word >> (16 * k)))}
                         : static_cast<S>((word >> (16 * k)) & 0xFFFFU);
    };
    for (const bool sa : {false, true})
        for (const bool sb : {false, true}) {
            check<U, U>(fmt::format("dp4a.{}32.{}32 %r4, %r1, %r2, %r3;", sa ? 's' : 'u', sb ? 's' : 'u'),
                        [=](U a, U b, U c) {
                            for (unsigned k = 0; k < 4; ++k)
                                c += static_cast<U>(bytes(a, k, sa) * bytes(b, k, sb));
                            return c;
                        });
            check<U, U>(fmt::format("dp2a.hi.{}32.{}32 %r4, %r1, %r2, %r3;", sa ? 's' : 'u', sb ? 's' : 'u'),
                        [=](U a, U b, U c) {
                            return c + static_cast<U>(halves(a, 0, sa) * bytes(b, 2, sb)) +
                                   static_cast<U>(halves(a, 1, sa) * bytes(b, 3, sb));
                        });
        }
    check<U, U>("max.s16x2 %r4, %r1, %r2;", [=](U a, U b, U) {
        return (static_cast<U>(std::max(halves(a, 0, true), halves(b, 0, true))) & 0xFFFFU) |
               static_cast<U>(std::max(halves(a, 1, true), halves(b, 1, true))) << 16U;
    });
    check<U, U>("min.relu.s16x2 %r4, %r1, %r2;", [=](U a, U b, U) {
        const auto one = [=](unsigned k) {
            return static_cast<U>(std::max(0, std::min(halves(a, k, true), halves(b, k, true))));
        };
        return one(0) | one(1) << 16U;
    });
    check<U, U>("add.u16x2 %r4, %r1, %r2;",
                [](U a, U b, U) { return ((a + b) & 0xFFFFU) | ((a & 0xFFFF0000U) + (b & 0xFFFF0000U)); });
    check<U, U>("vabsdiff4.u32.u32.u32.add %r4, %r1, %r2, %r3;", [=](U a, U b, U c) {
        for (unsigned k = 0; k < 4; ++k)
            c += static_cast<U>(std::abs(bytes(a, k, false) - bytes(b, k, false)));
        return c;
    });
    check<U, U>("vadd4.s32.s32.s32.sat %r4, %r1, %r2, %r3;", [=](U a, U b, U) {
        U d = 0;
        for (unsigned k = 0; k < 4; ++k)
            d |= (static_cast<U>(std::clamp(bytes(a, k, true) + bytes(b, k, true), -128, 127)) & 0xFFU)
                 << (8 * k);
        return d;
    });
}

// cvt between integers: extended by the type of the source, cut to or kept within that of the result.
void conversions(void **) {
    check<UL, UL>("cvt.u8.u64 %h5, %rd1; cvt.u64.u8 %rd4, %h5;", [](UL a, UL, UL) { return a & 0xFFU; });
    check<UL, UL>("cvt.s64.s8 %rd4, %rd1;",
                  [](UL a, UL, UL) { return static_cast<UL>(SL{static_cast<std::int8_t>(a)}); });
    check<UL, UL>("cvt.s8.u64 %r5, %rd1; cvt.s64.s32 %rd4, %r5;",
                  [](UL a, UL, UL) { return static_cast<UL>(SL{static_cast<std::int8_t>(a)}); });
    check<UL, UL>("cvt.sat.s32.s64 %r5, %rd1; cvt.s64.s32 %rd4, %r5;", [](UL a, UL, UL) {
        return static_cast<UL>(std::clamp<SL>(std::bit_cast<SL>(a), INT32_MIN, INT32_MAX));
    });
    check<U, U>("cvt.sat.u8.s32 %r4, %r1;",
                [](U a, U, U) { return static_cast<U>(std::clamp<SL>(std::bit_cast<S>(a), 0, 255)); });
    check<U, U>("cvt.sat.s8.u32 %r4, %r1;", [](U a, U, U) { return std::min(a, 127U); });
    check<U, U>("cvt.pack.sat.u8.s32.b32 %r4, %r1, %r2, %r3;", [](U a, U b, U c) {
        const auto byte = [](U x) { return static_cast<U>(std::clamp<SL>(std::bit_cast<S>(x), 0, 255)); };
        return (c << 16U) | byte(a) << 8U | byte(b);
    });
    check<UL, UL>(
        "ld.global.s8 %rd5, [%a]; ld.global.u16 %rd6, [%b]; shl.b64 %rd6, %rd6, 8; xor.b64 %rd4, %rd5, %rd6;",
        [](UL a, UL b, UL) {
            return static_cast<UL>(SL{static_cast<std::int8_t>(a)}) ^ ((b & 0xFFFFU) << 8U);
        });
    check<UL, UL>(
        "mov.b64 {%h5, %h6, %h7, %h8}, %rd1; mov.b64 %rd4, {%h8, %h7, %h6, %h5};", [](UL a, UL, UL) {
            return (a >> 48U) | ((a >> 16U) & 0xFFFF0000U) | ((a << 16U) & 0xFFFF00000000U) | (a << 48U);
        });
}

// vadd and its kin, by the formulas of the PTX ISA: sources extended by their types, the result in full, then
// saturated to its type, then combined with the third operand.
void scalar_video(void **) {
    using Full =
        singularity::softgpu::engine::Signed128; // 32 bits shifted by 32 are more than 64 with a sign
    const auto extended = [](char type, U word) {
        return type == 's' ? Full{static_cast<S>(word)} : Full{word};
    };
    const auto saturated = [](char type, Full value) {
        return type == 's' ? std::clamp<Full>(value, INT32_MIN, INT32_MAX)
                           : std::clamp<Full>(value, 0, UINT32_MAX);
    };
    struct Kind {
        const char *name;
        const char *mode; // of the shifts
        Full (*of)(Full, Full);
    };
    const Kind kinds[] = {
        {"vadd", "", [](Full x, Full y) { return x + y; }},
        {"vsub", "", [](Full x, Full y) { return x - y; }},
        {"vabsdiff", "", [](Full x, Full y) { return x < y ? y - x : x - y; }},
        {"vmin", "", [](Full x, Full y) { return std::min(x, y); }},
        {"vmax", "", [](Full x, Full y) { return std::max(x, y); }},
        {"vshl", ".clamp", [](Full x, Full y) { return x * (Full{1} << std::min<Full>(y, 32)); }},
        {"vshl", ".wrap", [](Full x, Full y) { return x * (Full{1} << (y % 32)); }},
        {"vshr", ".clamp", [](Full x, Full y) { return x >> std::min<Full>(y, 32); }},
        {"vshr", ".wrap", [](Full x, Full y) { return x >> (y % 32); }},
    };
    for (const Kind &kind : kinds)
        for (const std::string types : {"uuu", "uus", "usu", "uss", "suu", "sus", "ssu", "sss"})
            for (const bool saturates : {false, true})
                for (const std::string second : {"", ".add", ".min", ".max"}) {
                    const char d = types[0];
                    const char a = types[1];
                    const char b = *kind.mode != '\0' ? 'u' : types[2];
                    check<U, U>(fmt::format("{}.{}32.{}32.{}32{}{}{} %r4, %r1, %r2{};", kind.name, d, a, b,
                                            saturates ? ".sat" : "", kind.mode, second,
                                            second.empty() ? "" : ", %r3"),
                                [=](U x, U y, U z) {
                                    Full value = kind.of(extended(a, x), extended(b, y));
                                    if (saturates)
                                        value = saturated(d, value);
                                    const auto word = static_cast<U>(value);
                                    if (second.empty())
                                        return word;
                                    if (second == ".add")
                                        return word + z;
                                    const Full left = extended(d, word);
                                    const Full right = extended(d, z);
                                    return static_cast<U>(second == ".min" ? std::min(left, right)
                                                                           : std::max(left, right));
                                });
                }
}

// Parts of registers: what the PTX ISA calls selectors.
struct Part {
    const char *name;
    unsigned shift;
    unsigned bits;
};
constexpr Part kPieces[] = {{"", 0, 32},    {".b0", 0, 8},  {".b1", 8, 8},  {".b2", 16, 8},
                            {".b3", 24, 8}, {".h0", 0, 16}, {".h1", 16, 16}};

SL number_of(char type, U word, const Part &part) {
    const UL value = word >> part.shift & ((UL{1} << part.bits) - 1);
    const bool negative = type == 's' && (value >> (part.bits - 1)) != 0;
    return static_cast<SL>(value) - (negative ? SL{1} << part.bits : 0);
}
U put(U word, U value, const Part &part) {
    const auto mask = static_cast<U>(((UL{1} << part.bits) - 1) << part.shift);
    return (word & ~mask) | (value << part.shift & mask);
}

// All that is checked here, for NVIDIA's assembler.
std::string assembled;
void check_video(const std::string &instruction, const std::function<U(U, U, U)> &expected) {
    assembled += instruction + '\n';
    check<U, U>(instruction, expected);
}

void parts_of_registers(void **) {
    assembled.clear();
    for (const Part &a : kPieces)
        for (const Part &b : kPieces)
            for (const std::string types : {"uuu", "usu", "sus", "sss"}) {
                const auto sum = [=](U x, U y) {
                    return number_of(types[1], x, a) + number_of(types[2], y, b);
                };
                const auto name = fmt::format("vadd.{}32.{}32.{}32", types[0], types[1], types[2]);
                check_video(fmt::format("{} %r4, %r1{}, %r2{};", name, a.name, b.name),
                            [=](U x, U y, U) { return static_cast<U>(sum(x, y)); });
                check_video(fmt::format("{}.max %r4, %r1{}, %r2{}, %r3;", name, a.name, b.name), [=](U x, U y,
                                                                                                     U z) {
                    const auto word = static_cast<U>(sum(x, y));
                    return number_of(types[0], word, kPieces[0]) < number_of(types[0], z, kPieces[0]) ? z
                                                                                                      : word;
                });
            }
    for (const Part &d : kPieces)
        for (const char type : {'u', 's'})
            for (const bool saturates : {false, true}) {
                const auto limited = [=](SL value) {
                    const SL most = (SL{1} << (type == 's' ? d.bits - 1 : d.bits)) - 1;
                    const SL least = type == 's' ? -most - 1 : 0;
                    return static_cast<U>(saturates ? std::clamp(value, least, most) : value);
                };
                const char *const end = saturates ? ".sat" : "";
                check_video(fmt::format("vsub.{}32.s32.u32{} %r4{}, %r1.h1, %r2.b2, %r3;", type, end, d.name),
                            [=](U x, U y, U z) {
                                return put(
                                    z, limited(number_of('s', x, kPieces[6]) - number_of('u', y, kPieces[3])),
                                    d);
                            });
                check_video(
                    fmt::format("vshl.{}32.s32.u32{}.wrap %r4{}, %r1.b3, %r2.b0, %r3;", type, end, d.name),
                    [=](U x, U y, U z) {
                        return put(z, limited(number_of('s', x, kPieces[4]) * (SL{1} << (y & 31U))), d);
                    });
            }
    const std::string ptx = elementwise(assembled);
    assemble(ptx);
}

void comparisons_of_parts(void **) {
    assembled.clear();
    const std::pair<const char *, bool (*)(SL, SL)> comparisons[] = {
        {"eq", [](SL x, SL y) { return x == y; }}, {"ne", [](SL x, SL y) { return x != y; }},
        {"lt", [](SL x, SL y) { return x < y; }},  {"le", [](SL x, SL y) { return x <= y; }},
        {"gt", [](SL x, SL y) { return x > y; }},  {"ge", [](SL x, SL y) { return x >= y; }}};
    for (const auto &[name, holds] : comparisons)
        for (const std::string types : {"uu", "us", "su", "ss"}) {
            const auto one = [=, holds = holds](U x, const Part &a, U y, const Part &b) -> U {
                return holds(number_of(types[0], x, a), number_of(types[1], y, b)) ? 1 : 0;
            };
            const auto vset = [&](const char *kind) {
                return fmt::format("{}.{}32.{}32.{}", kind, types[0], types[1], name);
            };
            check_video(vset("vset") + " %r4, %r1, %r2;",
                        [=](U x, U y, U) { return one(x, kPieces[0], y, kPieces[0]); });
            check_video(vset("vset") + " %r4.h1, %r1.b0, %r2.b3, %r3;",
                        [=](U x, U y, U z) { return put(z, one(x, kPieces[1], y, kPieces[4]), kPieces[6]); });
            check_video(vset("vset") + ".add %r4, %r1.h0, %r2, %r3;",
                        [=](U x, U y, U z) { return one(x, kPieces[5], y, kPieces[0]) + z; });
            check_video(vset("vset") + ".min %r4, %r1.h0, %r2.h0, %r3;",
                        [=](U x, U y, U z) { return std::min(one(x, kPieces[5], y, kPieces[5]), z); });
            // Halves and bytes of the whole word; and those that are chosen, from both operands.
            check_video(vset("vset2") + " %r4, %r1, %r2, %r3;", [=](U x, U y, U) {
                return one(x, kPieces[5], y, kPieces[5]) | one(x, kPieces[6], y, kPieces[6]) << 16U;
            });
            check_video(vset("vset2") + " %r4.h1, %r1.h21, %r2.h03, %r3;",
                        [=](U x, U y, U z) { return put(z, one(y, kPieces[5], x, kPieces[5]), kPieces[6]); });
            check_video(vset("vset4") + ".add %r4, %r1, %r2, %r3;", [=](U x, U y, U z) {
                for (unsigned k = 1; k <= 4; ++k)
                    z += one(x, kPieces[k], y, kPieces[k]);
                return z;
            });
            check_video(vset("vset4") + ".add %r4.b20, %r1.b7123, %r2.b4506, %r3;", [=](U x, U y, U z) {
                return z + one(x, kPieces[4], y, kPieces[3]) + one(x, kPieces[2], y, kPieces[2]);
            });
        }
    // The same choice for the others of their kind.
    check_video("vadd4.s32.u32.s32.sat %r4.b3, %r1.b4000, %r2.b7321, %r3;", [](U, U y, U z) {
        const SL sum = number_of('u', y, kPieces[1]) + number_of('s', y, kPieces[4]);
        return put(z, static_cast<U>(std::clamp<SL>(sum, -128, 127)), kPieces[4]);
    });
    check_video("vabsdiff2.u32.s32.s32.add %r4.h0, %r1.h13, %r2.h32, %r3;", [](U, U y, U z) {
        const SL x = number_of('s', y, kPieces[6]) - number_of('s', y, kPieces[5]);
        return z + static_cast<U>(std::abs(x));
    });
    assemble(elementwise(assembled));
}

// vmad, by the table of the PTX ISA: what is negated makes the result, and the third operand, signed.
void products_and_sums(void **) {
    using Full = singularity::softgpu::engine::Signed128;
    assembled.clear();
    for (const std::string types : {"uu", "us", "su", "ss"})
        for (const char *negated : {"", "a", "b", "ab", "c", "po"})
            for (const bool saturates : {false, true})
                for (const unsigned shift : {0U, 7U, 15U})
                    for (const auto &[a, b] : {std::pair(0, 0), std::pair(1, 6), std::pair(5, 4)}) {
                        const std::string what = negated;
                        const bool plus = what == "po";
                        const bool product = what == "a" || what == "b";
                        const bool third = what == "c";
                        const auto minus = [&](char operand) {
                            return !plus && what.contains(operand) ? "-" : "";
                        };
                        const bool is_signed = types != "uu" || product || third;
                        const Part left = kPieces[a];
                        const Part right = kPieces[b];
                        check_video(
                            fmt::format("vmad.{}32.{}32.{}32{}{}{} %r4, {}%r1{}, {}%r2{}, {}%r3;",
                                        is_signed ? 's' : 'u', types[0], types[1], plus ? ".po" : "",
                                        saturates ? ".sat" : "",
                                        shift == 0 ? "" : fmt::format(".shr{}", shift), minus('a'), left.name,
                                        minus('b'), right.name, minus('c')),
                            [=](U x, U y, U z) {
                                Full value =
                                    Full{number_of(types[0], x, left)} * number_of(types[1], y, right);
                                const SL c = number_of(is_signed ? 's' : 'u', z, kPieces[0]);
                                value = (product ? -value : value) + (third ? -c : c) + (plus ? 1 : 0);
                                value >>= shift;
                                if (saturates)
                                    value = std::clamp<Full>(value, is_signed ? INT32_MIN : 0,
                                                             is_signed ? SL{INT32_MAX} : SL{UINT32_MAX});
                                return static_cast<U>(value);
                            });
                    }
    assemble(elementwise(assembled));
}

// A part that there is not, or that the instruction does not take: refused by name.
void parts_that_are_refused(void **) {
    for (const char *instruction :
         {"add.u32 %r4, %r1.b0, %r2;", "vadd.u32.u32.u32 %r4, %r1.h2, %r2;",
          "vadd.u32.u32.u32 %r4, %r1.b10, %r2;", "vadd.u32.u32.u32 %r4.b0, %r1, %r2;",
          "vmad.u32.u32.u32 %r4.b0, %r1, %r2, %r3;", "vadd.u32.u32.u32 %r4, -%r1, %r2;",
          "vmad.u32.u32.u32.po %r4, -%r1, %r2, %r3;", "vmad.u32.u32.u32 %r4, -%r1, %r2, -%r3;",
          "vadd2.u32.u32.u32 %r4, %r1.h4, %r2, %r3;", "vadd2.u32.u32.u32 %r4.h01, %r1, %r2, %r3;",
          "vadd4.u32.u32.u32 %r4.b4, %r1, %r2, %r3;", "vadd4.u32.u32.u32 %r4, %r1.b321, %r2, %r3;"}) {
        Device device(elementwise(instruction));
        U *out = device.zeroed<U>(32);
        static_cast<void>(device.fault_of(device.launch("k", {1}, {32}, Arguments(out, out, out, out, 32U)),
                                          singularity::softgpu::FaultKind::not_supported));
    }
}

// What changes nothing but speed: an access with a policy of each kind.
void cache_policies(void **) {
    const std::vector<std::uint32_t> numbers = {1, 2, 3, 40};
    constexpr const char *makers[] = {
        "createpolicy.fractional.L2::evict_last.b64 %rd1, 0.5;",
        "createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %rd1;",
        "createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %rd1, [%a], 16, 32;",
        "createpolicy.cvt.L2.b64 %rd1, 0x10F0000000000000;",
    };
    for (const char *make : makers)
        assert_true(
            (evaluate<std::uint32_t>(std::string(make) + "ld.global.L2::cache_hint.b32 %r1, [%a], %rd1;\n"
                                                         "st.global.release.gpu.b32 [%out], %r1;",
                                     numbers) == numbers));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(arithmetic),
                                cmocka_unit_test(wide_and_saturated),
                                cmocka_unit_test(carries),
                                cmocka_unit_test(bits),
                                cmocka_unit_test(packed_integers),
                                cmocka_unit_test(conversions),
                                cmocka_unit_test(cache_policies),
                                cmocka_unit_test(scalar_video),
                                cmocka_unit_test(parts_of_registers),
                                cmocka_unit_test(comparisons_of_parts),
                                cmocka_unit_test(products_and_sums),
                                cmocka_unit_test(parts_that_are_refused)};
    return cmocka_run_group_tests_name("softgpu-engine-integers", tests, nullptr, nullptr);
}
