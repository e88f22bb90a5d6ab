// SPDX-License-Identifier: GPL-2.0-or-later
// Rounding, overflow and what is no number, for every pair of small numbers and many pairs of others, against
// the toolkit's conversions; the loops of all instruction sets alike.
#include "cmocka.hpp"
#include "loops.hpp"
#include "proxy/collectives/reduce.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <fmt/format.h>

namespace {

using singularity::collectives::Loops;
using singularity::collectives::plain_loops;
using singularity::test::fail;
using singularity::test::is_short;

std::vector<const Loops *> all_loops() {
    std::vector<const Loops *> all{plain_loops()};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma"))
        all.push_back(singularity::collectives::vector_loops());
#endif
    return all;
}

// The larger or smaller of the two, as it is; a number rather than what is none.
template <class Float>
Float chosen(int reduction, Float a, Float b) {
    const auto x = static_cast<float>(a);
    const auto y = static_cast<float>(b);
    if (std::isnan(x) || std::isnan(y))
        return std::isnan(x) ? b : a;
    return (reduction == 2) == (x > y) ? a : b;
}

// Float: the toolkit's type; Bits: how it is stored.
template <class Float, class Bits>
void check_pairs(std::uint32_t type, const std::vector<Bits> &a, const std::vector<Bits> &b) {
    for (const auto *loops : all_loops())
        for (int reduction = 0; reduction < 4; ++reduction) {
            auto got = a;
            loops[type].combine[reduction](got.data(), b.data(), got.size());
            for (std::size_t index = 0; index < a.size(); ++index) {
                Float x;
                Float y;
                std::memcpy(static_cast<void *>(&x), &a[index], sizeof(x));
                std::memcpy(static_cast<void *>(&y), &b[index], sizeof(y));
                const auto fx = static_cast<float>(x);
                const auto fy = static_cast<float>(y);
                const auto value = reduction == 0 ? fx + fy : fx * fy;
                const auto wanted = reduction < 2 ? static_cast<Float>(value) : chosen(reduction, x, y);
                Float mine;
                std::memcpy(static_cast<void *>(&mine), &got[index], sizeof(mine));
                // Which of two zeros is the larger nobody says.
                const bool zeros = reduction >= 2 && fx == 0 && fy == 0;
                const bool same = std::isnan(static_cast<float>(wanted))
                                      ? std::isnan(static_cast<float>(mine))
                                  : zeros ? static_cast<float>(mine) == 0
                                          : std::memcmp(&mine, &wanted, sizeof(mine)) == 0;
                if (!same)
                    fail(fmt::format("type {}, reduction {}: {:#x} and {:#x} become {:#x}, not {}", type,
                                     reduction, a[index], b[index], got[index], static_cast<float>(wanted)));
            }
        }
}

template <class Float>
void all_pairs_of_bytes(std::uint32_t type) {
    std::vector<std::uint8_t> a;
    std::vector<std::uint8_t> b;
    for (unsigned x = 0; x < 256; ++x)
        for (unsigned y = 0; y < 256; ++y) {
            a.push_back(static_cast<std::uint8_t>(x));
            b.push_back(static_cast<std::uint8_t>(y));
        }
    check_pairs<Float>(type, a, b);
}
void fp8_e4m3(void **) { all_pairs_of_bytes<__nv_fp8_e4m3>(10); }
void fp8_e5m2(void **) { all_pairs_of_bytes<__nv_fp8_e5m2>(11); }

template <class Float>
void many_pairs(std::uint32_t type) {
    std::mt19937 random(1);
    const int pairs = is_short() ? 4 : 16;
    std::vector<std::uint16_t> a;
    std::vector<std::uint16_t> b;
    for (unsigned x = 0; x < 65536; ++x) // each with its neighbours in size, and any
        for (int more = 0; more < pairs; ++more) {
            a.push_back(static_cast<std::uint16_t>(x));
            b.push_back(static_cast<std::uint16_t>(more < pairs / 2 ? x ^ (random() & 0x87FF) : random()));
        }
    check_pairs<Float>(type, a, b);
}
void of_half(void **) { many_pairs<__half>(6); }
void of_bfloat16(void **) { many_pairs<__nv_bfloat16>(9); }

void whole_numbers_wrap(void **) {
    for (const auto *loops : all_loops()) {
        std::array<std::int8_t, 2> bytes{127, -128};
        const std::array<std::int8_t, 2> more{1, -1};
        loops[0].combine[0](bytes.data(), more.data(), bytes.size());
        assert_int_equal(bytes[0], -128);
        assert_int_equal(bytes[1], 127);
        std::array<std::int64_t, 2> words{std::numeric_limits<std::int64_t>::max(), -3};
        const std::array<std::int64_t, 2> factors{2, 5};
        loops[4].combine[1](words.data(), factors.data(), words.size());
        assert_true(words[0] == -2 && words[1] == -15);
        // An average is a quotient towards zero.
        std::array<std::int32_t, 3> sums{-7, 7, 9};
        loops[2].divide(sums.data(), 4, sums.size());
        assert_true(sums[0] == -1 && sums[1] == 1 && sums[2] == 2);
        // Compared as they are stored.
        std::array<std::int32_t, 1> least{-1};
        std::array<std::uint32_t, 1> most{0xFFFF'FFFF};
        const std::array<std::int32_t, 1> one{1};
        const std::array<std::uint32_t, 1> other{1};
        loops[2].combine[2](least.data(), one.data(), 1);
        loops[3].combine[2](most.data(), other.data(), 1);
        assert_int_equal(least[0], 1);
        assert_true(most[0] == 0xFFFF'FFFF);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(fp8_e4m3),    cmocka_unit_test(fp8_e5m2),           cmocka_unit_test(of_half),
        cmocka_unit_test(of_bfloat16), cmocka_unit_test(whole_numbers_wrap),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
