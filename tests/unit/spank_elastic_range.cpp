// SPDX-License-Identifier: GPL-2.0-or-later
// --singularity-elastic: what is accepted, what is refused, and that a refusal names the value and the fix.
#include "cmocka.hpp"
#include "elastic_range.hpp"

#include <string_view>

#include <fmt/format.h>

namespace {

using singularity::spank::ElasticLimits;
using singularity::spank::parse_elastic_range;
using singularity::spank::to_string;
using singularity::test::expect_contains;
using singularity::test::expect_equal;
using singularity::test::fail;

constexpr ElasticLimits kOpen{true, 1, 1048576};
constexpr ElasticLimits kNarrow{true, 2, 16};
constexpr ElasticLimits kOff{false, 1, 1048576};

void accepts_ranges(void **) {
    struct Case {
        std::string_view text;
        ElasticLimits limits;
        std::string_view shown;
    };
    const Case cases[] = {
        {"2-8", kOpen, "2-8"},     {"1-1", kOpen, "1-1"},      {"1-1048576", kOpen, "1-1048576"},
        {"2-16", kNarrow, "2-16"}, {"", kOpen, "1-requested"}, {"", kNarrow, "2-requested"},
        {"007-8", kOpen, "7-8"},
    };
    for (const Case &test : cases) {
        const auto range = parse_elastic_range(test.text, test.limits);
        if (!range)
            fail(fmt::format("'{}' refused: {}", test.text, range.error().message()));
        expect_equal(to_string(*range), test.shown);
    }
}

void refuses_with_value_and_reason(void **) {
    struct Case {
        std::string_view text;
        ElasticLimits limits;
        std::string_view reason;
    };
    const Case cases[] = {
        {"8", kOpen, "no '-'"},
        {"8-2", kOpen, "MIN 8 is greater than MAX 2"},
        {"0-4", kOpen, "MIN is 0"},
        {"0-0", kOpen, "MIN is 0"},
        {"2-", kOpen, "MAX '' is not a whole number"},
        {"-8", kOpen, "MIN '' is not a whole number"},
        {"-", kOpen, "MIN '' is not a whole number"},
        {"--", kOpen, "MIN '' is not a whole number"},
        {"2--8", kOpen, "MAX '-8' is not a whole number"},
        {"2-8-16", kOpen, "MAX '8-16' is not a whole number"},
        {"two-8", kOpen, "MIN 'two' is not a whole number"},
        {"2-8 ", kOpen, "MAX '8 ' is not a whole number"},
        {" 2-8", kOpen, "MIN ' 2' is not a whole number"},
        {"+2-8", kOpen, "MIN '+2' is not a whole number"},
        {"2.5-8", kOpen, "MIN '2.5' is not a whole number"},
        {"0x2-8", kOpen, "MIN '0x2' is not a whole number"},
        {"2-99999999999999999999", kOpen, "MAX '99999999999999999999' is too large"},
        {"1-8", kNarrow, "give at least 2 (elastic.min_gpus)"},
        {"2-17", kNarrow, "give at most 16 (elastic.max_gpus)"},
        {"2-8", kOff, "disabled on this cluster"},
        {"", kOff, "disabled on this cluster"},
        {"2\n-8", kOpen, "is not a whole number"},
    };
    for (const Case &test : cases) {
        const auto range = parse_elastic_range(test.text, test.limits);
        if (range)
            fail(fmt::format("'{}' was accepted as {}", test.text, to_string(*range)));
        expect_contains(range.error().why, test.reason);
        assert_false(range.error().message().contains('\n'));
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(accepts_ranges),
        cmocka_unit_test(refuses_with_value_and_reason),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
