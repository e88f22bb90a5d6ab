// SPDX-License-Identifier: GPL-2.0-or-later
// --singularity-checkpoint-every: Slurm's forms of time, and that a refusal names the value and the fix.
#include "checkpoint_every.hpp"
#include "cmocka.hpp"

#include <chrono>
#include <string_view>

#include <fmt/format.h>

namespace {

using namespace std::chrono_literals;
using singularity::spank::parse_checkpoint_every;
using singularity::spank::to_slurm_time;
using singularity::test::expect_contains;
using singularity::test::expect_equal;
using singularity::test::fail;

void takes_times_as_sbatch_does(void ** /*state*/) {
    struct Case {
        std::string_view text;
        std::chrono::seconds time;
    };
    const Case cases[] = {
        {"30", 30min},
        {"0:10", 10s},
        {"1:30", 90s},
        {"01:00:00", 1h},
        {"1:2:3", 1h + 2min + 3s},
        {"90:00", 90min},
        {"1-0", 24h},
        {"1-12", 36h},
        {"1-2:3", 26h + 3min},
        {"1-02:03:04", 26h + 3min + 4s},
        {"0", 0s},
        {"off", 0s},
        {"00:00", 0s},
        {"0-0:0:0", 0s},
        {"365-0", 365 * 24h},
        {"0-0:0:1", 1s},
        {"525600", 365 * 24h},
        {"0:31536000", 365 * 24h},
    };
    for (const Case &test : cases) {
        const auto time = parse_checkpoint_every(test.text, 1s);
        if (!time)
            fail(fmt::format("'{}' refused: {}", test.text, time.error().message()));
        expect_equal(fmt::format("{} {}", test.text, time->count()),
                     fmt::format("{} {}", test.text, test.time.count()));
    }
}

void refuses_with_value_and_reason(void ** /*state*/) {
    struct Case {
        std::string_view text;
        std::string_view reason;
    };
    const Case cases[] = {
        {"", "no time"},
        {"often", "no time"},
        {"-1", "no time"},
        {"+5", "no time"},
        {"5 ", "no time"},
        {" 5", "no time"},
        {"5m", "no time"},
        {"1.5", "no time"},
        {"1:", "no time"},
        {":1", "no time"},
        {"1:2:3:4", "no time"},
        {"1-", "no time"},
        {"1-2-3", "no time"},
        {"1-2:3:4:5", "no time"},
        {"OFF", "no time"},
        {"0x10", "no time"},
        {"UNLIMITED", "no time"},
        {"--5", "no time"},
        {"(null)", "no time"},
        {"5\n", "no time"},
        {"365-0:0:1", "more than a year"},
        {"525601", "more than a year"},
        {"99999999999999999999", "more than a year"},
        {"99999999999999999999-99999999999999999999:99999999999999999999:99999999999999999999",
         "more than a year"},
        {"1", "give at least 5 (elastic.checkpoint_every_least), or off"},
        {"4:59", "give at least 5 (elastic.checkpoint_every_least), or off"},
        {"0:01", "more often than this cluster allows"},
    };
    for (const Case &test : cases) {
        const auto time = parse_checkpoint_every(test.text, 5min);
        if (time)
            fail(fmt::format("'{}' was accepted as {} s", test.text, time->count()));
        expect_contains(time.error().why, test.reason);
        expect_equal(time.error().on, test.text);
        assert_false(time.error().message().contains('\n'));
    }
}

void the_least_is_allowed(void ** /*state*/) {
    assert_true(parse_checkpoint_every("5", 5min).value() == 5min);
    assert_true(parse_checkpoint_every("0:10", 10s).value() == 10s);
    assert_false(parse_checkpoint_every("0:10", 10001ms).has_value());
    expect_contains(parse_checkpoint_every("0:10", 10001ms).error().why, "give at least 0:11 ");
}

void shown_as_it_is_given(void ** /*state*/) {
    for (const std::string_view text : {"30", "0:10", "1:05", "0", "1440"})
        expect_equal(to_slurm_time(parse_checkpoint_every(text, 1s).value()), text);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(takes_times_as_sbatch_does),
        cmocka_unit_test(refuses_with_value_and_reason),
        cmocka_unit_test(the_least_is_allowed),
        cmocka_unit_test(shown_as_it_is_given),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
