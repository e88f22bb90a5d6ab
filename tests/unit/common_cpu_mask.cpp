// SPDX-License-Identifier: GPL-2.0-or-later
#include "cmocka.hpp"
#include "common/cpu_mask.hpp"

namespace {

using singularity::carried_over;
using singularity::CpuMask;
using singularity::same_processors;

void places_are_kept(void ** /*state*/) {
    const CpuMask four{0x0f};
    const CpuMask four_others{0, static_cast<char>(0xa5)}; // 8, 10, 13, 15
    assert_true(same_processors(carried_over(CpuMask{0x06}, four, four_others), CpuMask{0, 0x24}));
    assert_true(same_processors(carried_over(four, four, four_others), four_others));
    assert_true(same_processors(carried_over(four_others, four_others, four), four));
}

void fewer_are_shared(void ** /*state*/) {
    const CpuMask four{0x0f};
    assert_true(same_processors(carried_over(CpuMask{0x01}, four, CpuMask{0x30}), CpuMask{0x10}));
    assert_true(same_processors(carried_over(CpuMask{0x04}, four, CpuMask{0x30}), CpuMask{0x10}));
    assert_true(same_processors(carried_over(CpuMask{0x08}, four, CpuMask{0x30}), CpuMask{0x20}));
}

void what_is_not_within_is_not_carried(void ** /*state*/) {
    assert_true(carried_over(CpuMask{0x11}, CpuMask{0x0f}, CpuMask{0x0f}).empty());
    assert_true(carried_over(CpuMask{0x01}, CpuMask{0x0f}, CpuMask{0}).empty());
    assert_true(carried_over(CpuMask{}, CpuMask{0x0f}, CpuMask{0x0f}).empty());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(places_are_kept), cmocka_unit_test(fewer_are_shared),
                                cmocka_unit_test(what_is_not_within_is_not_carried)};
    return cmocka_run_group_tests_name("common_cpu_mask", tests, nullptr, nullptr);
}
