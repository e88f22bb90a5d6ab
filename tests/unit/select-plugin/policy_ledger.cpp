// SPDX-License-Identifier: GPL-2.0-or-later
// The ledger against the definition of the GPU fraction, and what needs and shortfalls follow from it.
#include "cmocka.hpp"
#include "common/config.hpp"
#include "policy_random.hpp"
#include "select-plugin/policy/ledger.hpp"
#include "select-plugin/policy/plan.hpp"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace {

using namespace singularity;
using namespace singularity::policy;

static_assert(std::is_trivially_copyable_v<Ledger>, "it is saved as it is");

void nothing_has_happened(void ** /*state*/) {
    const Ledger ledger(5 * kHour);
    assert_int_equal(ledger.life(), kOne);
    assert_int_equal(ledger.hour(), kOne);
    assert_int_equal(ledger.elapsed(), 0);
    assert_int_equal(ledger.hour_moves(), 0);
}

void waiting_counts_from_eligibility(void ** /*state*/) {
    Ledger ledger(1000);
    ledger.advance(1000 + (10 * kMinute), 0, 0);
    assert_int_equal(ledger.life(), 0);
    ledger.advance(1000 + (40 * kMinute), kOne, 8);
    assert_int_equal(ledger.life(), 750'000);
    assert_int_equal(ledger.hour(), 750'000);
    assert_int_equal(ledger.gpu_time(), Milliseconds{8} * 30 * kMinute);
}

void speed_is_what_was_measured_not_the_number_of_gpus(void ** /*state*/) {
    Ledger ledger(0);
    ledger.advance(10 * kMinute, 600'000, 4); // half of 8 GPUs, at 60 % of the speed
    assert_int_equal(ledger.life(), 600'000);
    ledger.advance(20 * kMinute, kOne, 8);
    assert_int_equal(ledger.life(), 800'000);
    assert_int_equal(ledger.work(), 16 * kMinute * kOne);
}

void the_hour_forgets(void ** /*state*/) {
    Ledger ledger(0);
    ledger.advance(2 * kHour, kOne, 1);
    ledger.advance(3 * kHour, 0, 0);
    assert_int_equal(ledger.life(), 666'666);
    // The minute that has begun is in it, and the 59 before.
    assert_int_equal(ledger.hour_work(), 0);
    ledger.advance((3 * kHour) + (30 * kMinute), kOne, 1);
    assert_int_equal(ledger.hour_elapsed(), 59 * kMinute);
    assert_int_equal(ledger.hour_work(), 30 * kMinute * kOne);
}

void moves_are_counted_by_the_hour(void ** /*state*/) {
    Ledger ledger(0);
    ledger.advance(kMinute, kOne, 1);
    ledger.moved(kMinute);
    ledger.moved(kMinute + 1);
    ledger.advance(30 * kMinute, kOne, 1);
    ledger.moved(30 * kMinute);
    assert_int_equal(ledger.hour_moves(), 3);
    ledger.advance((61 * kMinute) + 1, kOne, 1);
    assert_int_equal(ledger.hour_moves(), 1);
    ledger.advance(3 * kHour, kOne, 1);
    assert_int_equal(ledger.hour_moves(), 0);
    assert_int_equal(ledger.moves(), 3);
}

void a_clock_that_is_set_back_takes_nothing(void ** /*state*/) {
    Ledger ledger(kHour);
    ledger.advance(kHour + kMinute, kOne, 1);
    ledger.advance(kHour, 0, 0);
    ledger.moved(0);
    assert_int_equal(ledger.work(), kMinute * kOne);
    assert_int_equal(ledger.until(), kHour + kMinute);
    assert_int_equal(ledger.hour_moves(), 1);
}

// Against a list of everything that happened.
void random_lives(void ** /*state*/) {
    struct Period {
        Milliseconds from, to;
        Fraction speed;
    };
    for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
        policy::testing::Random random(seed);
        Milliseconds now = random.from(0, 1'000'000'000);
        const Milliseconds eligible = now;
        Ledger ledger(now);
        std::vector<Period> periods;
        std::vector<Milliseconds> moves;
        for (int step = 0; step < 40; ++step) {
            const Milliseconds next = now + random.from(0, random.chance(10) ? 2 * kHour : 5 * kMinute);
            const Fraction speed = random.chance(40) ? 0 : random.from(1, kOne);
            ledger.advance(next, speed, 3);
            periods.push_back({now, next, speed});
            now = next;
            if (random.chance(30)) {
                ledger.moved(now);
                moves.push_back(now);
            }
            const Milliseconds begin = ((now / kMinute) - 59) * kMinute;
            Work work = 0;
            Work hour = 0;
            for (const Period &period : periods) {
                work += (period.to - period.from) * period.speed;
                hour += std::max<Milliseconds>(0, period.to - std::max(period.from, begin)) * period.speed;
            }
            assert_int_equal(ledger.work(), work);
            assert_int_equal(ledger.hour_work(), hour);
            assert_int_equal(ledger.hour_elapsed(), now - std::max(begin, eligible));
            assert_int_equal(ledger.hour_moves(),
                             std::ranges::count_if(moves, [begin](auto at) { return at >= begin; }));
            assert_true(ledger.hour() >= 0 && ledger.hour() <= kOne);
        }
    }
}

constexpr Size kElastic[] = {{2, 1, 300'000}, {4, 1, 600'000}, {6, 1, 800'000}, {8, 1, kOne}};

// A job that has run for `hours` at the fraction, now at a size or (4) pending.
struct Fixture {
    Snapshot snapshot;
    Rules rules;

    explicit Fixture(Tier tier, Milliseconds elapsed, Fraction fraction, std::uint32_t size) {
        rules.margin = 0;
        Job job{.id = 1,
                .tier = tier,
                .state = size == 4 ? JobState::kPending : JobState::kRunning,
                .size = size % 4};
        job.elapsed = elapsed;
        job.work = elapsed * fraction;
        job.hour_elapsed = std::min(elapsed, kHour);
        job.hour_work = job.hour_elapsed * fraction;
        job.move_cost = 30 * kSecond;
        snapshot.nodes.push_back({.gpus = 8});
        const Share share{0, kElastic[size % 4].gpus};
        snapshot.add(job, kElastic, size == 4 ? std::span<const Share>() : std::span(&share, 1));
        assert_true(defect_of(snapshot).empty());
    }
    [[nodiscard]] std::uint32_t need() const { return need_of(snapshot.jobs[0], snapshot, rules); }
    [[nodiscard]] Fraction shortfall() const { return shortfall_of(snapshot.jobs[0], snapshot, rules); }
};

void needs_follow_from_guarantees(void ** /*state*/) {
    // Best effort never needs anything.
    assert_int_equal(Fixture(Tier::kBasic, kHour, 0, 4).need(), kNobody);
    assert_int_equal(Fixture(Tier::kBasic, kHour, 0, 4).shortfall(), 0);
    // A new job needs to start at a size that keeps the promise from now on.
    assert_int_equal(Fixture(Tier::kPremium, 0, 0, 4).need(), 3);
    assert_int_equal(Fixture(Tier::kStandard, 0, 0, 4).need(),
                     3); // 0.8 for 90 s of 120 s is less than 0.7 for 120 s
    assert_int_equal(Fixture(Tier::kStandard, 0, kOne, 2).need(), 2); // but 0.8 is enough for one that runs
    assert_int_equal(Fixture(Tier::kStandard, 0, kOne, 1).need(), 3); // and 0.6 is not
    // After an hour at full speed standard has banked 1080 s and can pause for the payback of 15 minutes;
    // after half an hour it can run at 0.3 for so long. Premium has banked 180 s, too little for anything.
    assert_int_equal(Fixture(Tier::kStandard, kHour, kOne, 3).need(), kNobody);
    assert_int_equal(Fixture(Tier::kStandard, kHour / 2, kOne, 3).need(), 0);
    assert_int_equal(Fixture(Tier::kPremium, kHour, kOne, 3).need(), 3);
    // What is below its guarantee needs all that it can get.
    assert_int_equal(Fixture(Tier::kPremium, kHour, 900'000, 3).need(), 3);
    assert_int_equal(Fixture(Tier::kStandard, kHour, 600'000, 1).need(), 3);
}

void the_margin_is_kept_in_reserve(void ** /*state*/) {
    Fixture standard(Tier::kStandard, 0, kOne, 2);
    standard.rules.margin = 300'000; // 0.79, and 0.8 is still enough
    assert_int_equal(standard.need(), 2);
    standard.rules.margin = 400'000; // 0.82
    assert_int_equal(standard.need(), 3);
    assert_int_equal(standard.rules.aim_of(Tier::kStandard), 820'000);
    assert_int_equal(standard.rules.aim_of(Tier::kBasic), 0);
}

void shortfalls_look_ahead(void ** /*state*/) {
    assert_int_equal(Fixture(Tier::kPremium, 0, 0, 4).shortfall(), 950'000);
    assert_int_equal(Fixture(Tier::kStandard, 0, 0, 4).shortfall(), 700'000);
    assert_int_equal(Fixture(Tier::kPremium, kHour, kOne, 3).shortfall(), 0);
    // 60 minutes at 0.5 and two at 1: 32 of 62.
    assert_int_equal(Fixture(Tier::kStandard, kHour, 500'000, 3).shortfall(), 700'000 - 516'129);
}

void rules_come_from_the_configuration(void ** /*state*/) {
    assert_true(rules_of(Config()) == Rules());
    const auto config =
        config::parse("premium: {guarantee_percent: 90, moves_per_hour: 3, least_run: 7m}\n"
                      "planner: {horizon: 1m, margin_percent: 10, payback: 2h, service_quantum: 30m, "
                      "strict_tiers: false}\n",
                      "c.yaml");
    assert_true(config.has_value());
    Rules expected;
    expected.tiers[0] = {.guarantee = 900'000, .moves_per_hour = 3, .least_run = 7 * kMinute};
    expected.horizon = kMinute;
    expected.margin = 100'000;
    expected.payback = 2 * kHour;
    expected.service_quantum = 30 * kMinute;
    expected.strict_tiers = false;
    assert_true(rules_of(*config) == expected);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(nothing_has_happened),
        cmocka_unit_test(waiting_counts_from_eligibility),
        cmocka_unit_test(speed_is_what_was_measured_not_the_number_of_gpus),
        cmocka_unit_test(the_hour_forgets),
        cmocka_unit_test(moves_are_counted_by_the_hour),
        cmocka_unit_test(a_clock_that_is_set_back_takes_nothing),
        cmocka_unit_test(random_lives),
        cmocka_unit_test(needs_follow_from_guarantees),
        cmocka_unit_test(the_margin_is_kept_in_reserve),
        cmocka_unit_test(shortfalls_look_ahead),
        cmocka_unit_test(rules_come_from_the_configuration),
    };
    return cmocka_run_group_tests_name("policy_ledger", tests, nullptr, nullptr);
}
