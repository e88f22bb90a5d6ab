// SPDX-License-Identifier: GPL-2.0-or-later
// The thread in slurmctld: its pace, and that it can always be left.
#include "background.hpp"
#include "cmocka.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>

#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace std::chrono_literals;

constexpr auto kLong = 30s;

bool within_reason(std::future<void> &future) { return future.wait_for(kLong) == std::future_status::ready; }

void steps_until_there_is_nothing_more_to_do(void ** /*state*/) {
    std::promise<void> done;
    auto finished = done.get_future();
    std::atomic<int> steps = 0;
    Background background;
    assert_true(background
                    .start("test", 1ms,
                           [&]() -> std::optional<std::chrono::milliseconds> {
                               if (++steps < 5)
                                   return 1ms;
                               done.set_value();
                               return std::nullopt;
                           })
                    .has_value());
    assert_true(background.started());
    assert_true(within_reason(finished));
    background.stop(Deadline::after(kLong));
    assert_int_equal(steps, 5);
    assert_false(background.started());
}

void waiting_thread_is_woken(void ** /*state*/) {
    std::atomic<int> steps = 0;
    Background background;
    assert_true(background
                    .start("test", 1h,
                           [&]() -> std::optional<std::chrono::milliseconds> {
                               ++steps;
                               return 1h;
                           })
                    .has_value());
    const auto begin = std::chrono::steady_clock::now();
    background.stop(Deadline::after(kLong));
    assert_true(std::chrono::steady_clock::now() - begin < kLong);
    assert_int_equal(steps, 0);
}

void busy_thread_is_left_behind_and_does_no_other_step(void ** /*state*/) {
    std::promise<void> entered;
    std::promise<void> release;
    std::promise<void> gone;
    auto inside = entered.get_future();
    auto end = gone.get_future();
    std::atomic<int> steps = 0;
    // Destroyed with the step, hence when the thread has really ended.
    const auto witness = std::shared_ptr<int>(new int(0), [&gone](const int *value) {
        delete value;
        gone.set_value();
    });
    Background background;
    {
        // The step's own share, so that it is the step's end that destroys it.
        auto held = witness; // NOLINT(performance-unnecessary-copy-initialization)
        assert_true(background
                        .start("test", 0ms,
                               [&, held]() -> std::optional<std::chrono::milliseconds> {
                                   ++steps;
                                   entered.set_value();
                                   release.get_future().wait();
                                   return 0ms;
                               })
                        .has_value());
    }
    assert_true(within_reason(inside));
    const auto begin = std::chrono::steady_clock::now();
    background.stop(Deadline::after(50ms));
    assert_true(std::chrono::steady_clock::now() - begin < kLong);
    release.set_value();
    const_cast<std::shared_ptr<int> &>(witness).reset();
    assert_true(within_reason(end));
    assert_int_equal(steps, 1);
}

void signals_are_for_the_host_program(void ** /*state*/) {
    std::promise<sigset_t> mask;
    auto seen = mask.get_future();
    Background background;
    assert_true(background
                    .start("test", 0ms,
                           [&]() -> std::optional<std::chrono::milliseconds> {
                               sigset_t blocked{};
                               pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
                               mask.set_value(blocked);
                               return std::nullopt;
                           })
                    .has_value());
    assert_true(seen.wait_for(kLong) == std::future_status::ready);
    const sigset_t blocked = seen.get();
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGCHLD})
        assert_true(sigismember(&blocked, signal) == 1);
    sigset_t own{};
    pthread_sigmask(SIG_SETMASK, nullptr, &own);
    assert_true(sigismember(&own, SIGTERM) == 0);
    background.stop(Deadline::after(kLong));
}

void fork_without_the_thread_does_not_wait_for_it(void ** /*state*/) {
    Background background;
    assert_true(background.start("test", 1h, []() -> std::optional<std::chrono::milliseconds> { return 1h; })
                    .has_value());
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        background.stop(Deadline::after(1h));
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    background.stop(Deadline::after(kLong));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(steps_until_there_is_nothing_more_to_do),
        cmocka_unit_test(waiting_thread_is_woken),
        cmocka_unit_test(busy_thread_is_left_behind_and_does_no_other_step),
        cmocka_unit_test(signals_are_for_the_host_program),
        cmocka_unit_test(fork_without_the_thread_does_not_wait_for_it),
    };
    return cmocka_run_group_tests_name("select_plugin_background", tests, nullptr, nullptr);
}
