// SPDX-License-Identifier: GPL-2.0-or-later
// Whatever uses the store is killed before every system call that changes something, and at random moments:
// earlier checkpoints stay whole, the interrupted one is there as a whole or not at all, and nothing is left
// behind.
#include "store_scenes.hpp"

#include <csignal>
#include <random>

namespace {

using namespace singularity;
using namespace singularity::test;
using store::Store;

constexpr int kMostCalls = 2000;

// Each time on a store of its own. Returns how many points there were.
int kill_at_every_call(const Scene &scene) {
    for (int point = 0;; point += kStride) {
        assert_true(point < kMostCalls);
        const TemporaryDirectory directory;
        const fs::path top = directory.path() / "store";
        scene.prepare(top);
        int changes = 0;
        bool done = false;
        const auto outcome = supervise(
            directory.path(), [&] { return scene.body(top) ? 0 : 1; },
            [&](const Call &call) -> Verdict {
                if (call.changes && changes++ == point)
                    return Kill{};
                done = done || scene.decides(call);
                return Proceed{};
            });
        assert_int_equal(outcome.status, 0);
        {
            const Store store = must(Store::open(top, options_of_scene()));
            if (contents_of(store) != (done ? scene.after : scene.before))
                fail(fmt::format("killed at '{}': other checkpoints than expected", outcome.last));
            expect_account_is_right(store);
        }
        collect_all(directory);
        if (!outcome.killed)
            return point;
    }
}

void killed_at_every_call(void ** /*state*/) {
    for (const Scene &scene : scenes()) {
        const int points = kill_at_every_call(scene);
        print_message("%s: %d points of death tried and survived\n", scene.name,
                      (points + kStride - 1) / kStride);
        assert_true(points >= scene.least);
    }
}

void killed_at_random_moments(void ** /*state*/) {
    const TemporaryDirectory directory;
    const fs::path top = directory.path() / "store";
    const auto seed = static_cast<std::uint64_t>(::getpid());
    print_message("seed %llu\n", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    must(write_checkpoint(must(Store::open(top, options_of_scene())), 0));
    std::multiset<std::uint64_t> there{0};
    std::size_t killed = 0;
    for (std::uint64_t round = 1; round <= 25; ++round) {
        const auto run = [&top](auto body) {
            return start_process([&] {
                const auto store = Store::open(top, options_of_scene());
                return store && body(*store).has_value();
            });
        };
        const pid_t writer = run([&](const Store &store) { return write_checkpoint(store, round); });
        const pid_t collector =
            run([](const Store &store) { return store::collect_garbage(store, kAlice, at_once()); });
        // The moment is what is random here; nothing waits for anything.
        ::usleep(static_cast<useconds_t>(random() % 60'000));
        ::kill(writer, SIGKILL);
        ::usleep(static_cast<useconds_t>(random() % 5'000));
        ::kill(collector, SIGKILL);
        killed += WIFSIGNALED(wait_for(writer)) ? 1 : 0;
        wait_for(collector);
        {
            const Store store = must(Store::open(top, options_of_scene()));
            const auto now = contents_of(store);
            auto expected = there;
            if (now.contains(round))
                expected.insert(round);
            assert_true(now == expected);
            there = now;
            expect_account_is_right(store);
        }
        if (round % 5 == 0)
            collect_all(directory);
    }
    collect_all(directory);
    print_message("%zu writers killed\n", killed);
}

// A writer that was stopped for longer than its lease cannot commit: what it relied on may be gone.
void a_writer_taken_for_dead_cannot_commit(void ** /*state*/) {
    const TemporaryDirectory directory;
    const fs::path top = directory.path() / "store";
    const Store store = must(Store::open(top, creating()));
    must(store.remove(kAlice, save(store, noise(5 * kMiB, 1))));
    auto writer = must(store.begin(request_of(kAlice)));
    write_image(writer, {"node0", "", "pages"}, noise(5 * kMiB, 1)); // found in the store
    wait_for_content(writer);
    assert_int_equal(collect_all(directory).broken, 1);
    const auto error = must_fail(writer.commit());
    assert_int_equal(error.code, ESTALE);
    expect_contains(error.message(), "its lease is gone");
    assert_true(must(store.list(kAlice)).checkpoints.empty());
    collect_all(directory);
}

// The same while nobody takes it for dead: what it found stays.
void a_living_writer_keeps_what_it_found(void ** /*state*/) {
    const TemporaryDirectory directory;
    const Store store = must(Store::open(directory.path() / "store", creating()));
    const Bytes data = noise(5 * kMiB, 1);
    must(store.remove(kAlice, save(store, data)));
    auto writer = must(store.begin(request_of(kAlice)));
    write_image(writer, {"node0", "", "pages"}, data);
    wait_for_content(writer);
    for (int round = 0; round < 3; ++round)
        assert_int_equal(must(store::collect_garbage(store, kAlice, at_once())).removed_chunks, 0);
    const auto id = must(writer.commit()).id;
    assert_true(must(load(store, id)) == data); // from among the condemned
    const auto report = must(store::collect_garbage(store, kAlice, at_once()));
    assert_int_equal(report.restored, 2);
    assert_true(must(load(store, id)) == data);
    expect_tidy(directory);
    collect_all(directory);
}

} // namespace

int main() {
    in_memory();
    const CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_every_call),
        cmocka_unit_test(killed_at_random_moments),
        cmocka_unit_test(a_writer_taken_for_dead_cannot_commit),
        cmocka_unit_test(a_living_writer_keeps_what_it_found),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
