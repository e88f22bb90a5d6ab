// SPDX-License-Identifier: GPL-2.0-or-later
#include "cmocka.hpp"
#include "common/deadline.hpp"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#include <poll.h>

namespace {

using namespace singularity;
using namespace std::chrono_literals;
using std::chrono::milliseconds;
using test::expect_equal;

void expires_at_its_time(void ** /*state*/) {
    const Deadline passed = Deadline::after(0ms);
    assert_true(passed.expired());
    assert_true(passed.remaining() == Deadline::Clock::duration::zero());
    assert_int_equal(passed.poll_timeout(), 0);
    assert_true(Deadline::after(-5s).expired());

    const Deadline far = Deadline::after(1h);
    assert_false(far.expired());
    assert_in_range(far.poll_timeout(), 3'590'000, 3'600'000);
}

void spans_beyond_the_clock_do_not_overflow(void ** /*state*/) {
    for (const milliseconds span :
         {milliseconds::max(), milliseconds::max() / 2, milliseconds(24h * 365 * 1000)}) {
        const Deadline deadline = Deadline::after(span);
        assert_false(deadline.expired());
        assert_int_equal(deadline.poll_timeout(), std::numeric_limits<int>::max());
    }
    assert_true(Deadline::after(milliseconds::min()).expired());
}

void polling_with_the_timeout_ends_behind_the_deadline(void ** /*state*/) {
    // Rounded down, the timeout would end in front of it nearly every time.
    for (int i = 0; i < 20; ++i) {
        const Deadline deadline = Deadline::after(3ms);
        assert_int_equal(::poll(nullptr, 0, deadline.poll_timeout()), 0);
        assert_true(deadline.expired());
    }
}

void polled_condition_is_waited_for(void ** /*state*/) {
    int asked = 0;
    const auto found =
        wait_until([&asked] { return ++asked == 4; }, Deadline::after(1h), "the fourth question");
    assert_true(found.has_value());
    assert_int_equal(asked, 4);
}

void polled_condition_that_never_holds_is_named(void ** /*state*/) {
    const auto start = Deadline::Clock::now();
    const auto found = wait_until([] { return false; }, Deadline::after(30ms), "slurmctld to answer");
    assert_true(Deadline::Clock::now() - start >= 30ms);
    assert_false(found.has_value());
    assert_int_equal(found.error().code, ETIMEDOUT);
    expect_equal(found.error().message(), "cannot wait any longer for slurmctld to answer: 30ms have passed");
}

void condition_that_holds_is_no_timeout(void ** /*state*/) {
    assert_true(wait_until([] { return true; }, Deadline::after(0ms), "nothing").has_value());
    std::mutex mutex;
    std::condition_variable changed;
    std::unique_lock lock(mutex);
    assert_true(wait_until(lock, changed, [] { return true; }, Deadline::after(0ms), "nothing").has_value());
}

void notified_condition_is_waited_for(void ** /*state*/) {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    const std::jthread other([&] {
        const std::scoped_lock lock(mutex);
        done = true;
        changed.notify_one();
    });
    std::unique_lock lock(mutex);
    assert_true(
        wait_until(lock, changed, [&done] { return done; }, Deadline::after(60s), "the thread").has_value());
    assert_true(lock.owns_lock());
}

void notified_condition_that_never_holds_is_named(void ** /*state*/) {
    std::mutex mutex;
    std::condition_variable changed;
    std::unique_lock lock(mutex);
    const auto found =
        wait_until(lock, changed, [] { return false; }, Deadline::after(20ms), "a thread that is not there");
    assert_false(found.has_value());
    expect_equal(found.error().message(),
                 "cannot wait any longer for a thread that is not there: 20ms have passed");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(expires_at_its_time),
        cmocka_unit_test(spans_beyond_the_clock_do_not_overflow),
        cmocka_unit_test(polling_with_the_timeout_ends_behind_the_deadline),
        cmocka_unit_test(polled_condition_is_waited_for),
        cmocka_unit_test(polled_condition_that_never_holds_is_named),
        cmocka_unit_test(condition_that_holds_is_no_timeout),
        cmocka_unit_test(notified_condition_is_waited_for),
        cmocka_unit_test(notified_condition_that_never_holds_is_named),
    };
    return cmocka_run_group_tests_name("common_deadline", tests, nullptr, nullptr);
}
