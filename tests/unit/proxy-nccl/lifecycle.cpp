// SPDX-License-Identifier: GPL-2.0-or-later
// How communicators begin and end: by rank, all at once, by splitting and shrinking; waiting and not.
#include "lifecycle.hpp"

#include "collective.hpp"
#include "common/deadline.hpp"
#include "fixture.hpp"

#include <array>
#include <cstdlib>
#include <set>
#include <thread>

using namespace singularity;
using namespace singularity::test;

namespace {

constexpr std::chrono::seconds kPatience{30};

Config not_blocking() {
    Config config;
    config.blocking = 0;
    return config;
}

// Ends the test unless the communicator's state becomes that.
void await_state(World &world, CommunicatorHandle handle, Result expected) {
    auto now = Result::in_progress;
    const auto waited = wait_until(
        [&] {
            World::expect(async_error(world.library, handle, &now), Result::success);
            return now != Result::in_progress;
        },
        Deadline::after(kPatience), "the communicator's state");
    assert_true(waited.has_value());
    World::expect(now, expected);
}

int number(Result (*ask)(Library &, CommunicatorHandle, int *), World &world, CommunicatorHandle handle) {
    int out = -1;
    World::expect(ask(world.library, handle, &out), Result::success);
    return out;
}

void ranks_of_several_threads_meet(void ** /*state*/) {
    World world;
    const auto id = new_unique_id().value();
    std::array<CommunicatorHandle, 4> all{};
    std::array<Result, 4> results{};
    {
        std::vector<std::jthread> threads;
        for (int own = 0; own < 4; ++own)
            threads.emplace_back([&, own] {
                FakeDriver::device_of_thread = own;
                results.at(own) = init_rank(world.library, &all.at(own), 4, own, 1, &id, nullptr);
            });
    }
    for (int own = 0; own < 4; ++own) {
        World::expect(results.at(own), Result::success);
        assert_int_equal(number(rank, world, all.at(own)), own);
        assert_int_equal(number(count, world, all.at(own)), 4);
        assert_int_equal(number(device, world, all.at(own)), own);
    }
}

void ranks_of_one_thread_meet_in_a_group(void ** /*state*/) {
    World world;
    const std::array ids{new_unique_id().value(), new_unique_id().value()};
    std::array<CommunicatorHandle, 3> all{};
    Group::mine().start();
    for (int own = 0; own < 3; ++own)
        World::expect(init_rank(world.library, &all.at(own), 3, own, 2, ids.data(), nullptr),
                      Result::success);
    World::expect(Group::mine().end(world.library), Result::success);
    assert_int_equal(number(rank, world, all[2]), 2);
}

void wrong_ranks_are_refused(void ** /*state*/) {
    World world;
    const auto id = new_unique_id().value();
    const UniqueId nothing{};
    auto handle = std::bit_cast<CommunicatorHandle>(std::uintptr_t{8});
    World::expect(init_rank(world.library, &handle, 2, 2, 1, &id, nullptr), Result::invalid_argument,
                  "Invalid rank requested : 2/2");
    assert_null(handle);
    World::expect(init_rank(world.library, &handle, 2, -1, 1, &id, nullptr), Result::invalid_argument);
    World::expect(init_rank(world.library, &handle, 0, 0, 1, &id, nullptr), Result::invalid_argument);
    World::expect(init_rank(world.library, &handle, 1 << 20, 0, 1, &id, nullptr), Result::invalid_argument);
    World::expect(init_rank(world.library, &handle, 2, 0, 3, &id, nullptr), Result::invalid_argument,
                  "nId = 3");
    World::expect(init_rank(world.library, nullptr, 2, 0, 1, &id, nullptr), Result::invalid_argument,
                  "newcomm argument is NULL");
    World::expect(init_rank(world.library, &handle, 2, 0, 1, &nothing, nullptr), Result::invalid_argument);
    const std::array twice{0, 0};
    const std::array unknown{0, 4};
    std::array<CommunicatorHandle, 5> all{};
    World::expect(init_all(world.library, all.data(), 2, twice.data()), Result::invalid_usage);
    World::expect(init_all(world.library, all.data(), 2, unknown.data()), Result::invalid_argument,
                  "Invalid device 4 (totalnDev=4)");
    World::expect(init_all(world.library, all.data(), 5, nullptr), Result::invalid_argument);
    World::expect(init_all(world.library, all.data(), -1, nullptr), Result::invalid_argument);
    assert_int_equal(world.driver.joined(), 0);
}

void who_does_not_wait_asks(void ** /*state*/) {
    World world;
    const auto id = new_unique_id().value();
    const auto config = not_blocking();
    std::array<CommunicatorHandle, 2> both{};
    World::expect(init_rank(world.library, both.data(), 2, 0, 1, &id, &config), Result::in_progress);
    assert_non_null(both[0]);
    int out = 0;
    World::expect(count(world.library, both[0], &out), Result::invalid_argument,
                  "before the previous operation returned ncclSuccess");
    const auto second = init_rank(world.library, &both[1], 2, 1, 1, &id, &config);
    assert_true(second == Result::in_progress || second == Result::success);
    await_state(world, both[0], Result::success);
    await_state(world, both[1], Result::success);
    assert_int_equal(number(count, world, both[1]), 2);
    const auto ended = finalize(world.library, both[0]);
    assert_true(ended == Result::in_progress || ended == Result::success);
    await_state(world, both[0], Result::success);
    World::expect(finalize(world.library, both[0]), Result::invalid_argument);
    World::expect(destroy(world.library, both[0]), Result::success);
    World::expect(count(world.library, both[0], &out), Result::invalid_argument, "corrupted");
}

void blocking_and_not_do_not_mix_in_a_group(void ** /*state*/) {
    World world;
    const auto id = new_unique_id().value();
    const auto config = not_blocking();
    std::array<CommunicatorHandle, 2> both{};
    Group::mine().start();
    World::expect(init_rank(world.library, both.data(), 2, 0, 1, &id, &config), Result::in_progress);
    World::expect(init_rank(world.library, &both[1], 2, 1, 1, &id, nullptr), Result::invalid_argument,
                  "not allowed in the same group");
    World::expect(Group::mine().end(world.library), Result::invalid_argument);
    assert_null(both[0]);
    assert_null(both[1]);
    assert_int_equal(world.driver.joined(), 0);
}

void an_abort_ends_what_waits(void ** /*state*/) {
    World world;
    const auto id = new_unique_id().value();
    const auto config = not_blocking();
    CommunicatorHandle alone = nullptr;
    World::expect(init_rank(world.library, &alone, 2, 0, 1, &id, &config), Result::in_progress);
    World::expect(singularity::nccl::abort(world.library, alone), Result::success);
    int out = 0;
    World::expect(count(world.library, alone, &out), Result::invalid_argument, "corrupted");
    World::expect(singularity::nccl::abort(world.library, nullptr), Result::success);
}

void waiting_ends_at_its_limit(void ** /*state*/) {
    World world;
    const auto id = new_unique_id().value();
    CommunicatorHandle alone = nullptr;
    setenv("SINGULARITY_NCCL_TIMEOUT", "1", 1);
    World::expect(init_rank(world.library, &alone, 2, 0, 1, &id, nullptr), Result::system_error,
                  "all 2 ranks joining has not happened within 1 s");
    unsetenv("SINGULARITY_NCCL_TIMEOUT");
    assert_null(alone);
    assert_int_equal(world.driver.left(true).size(), 1);
}

void splits_order_ranks_by_key_and_rank(void ** /*state*/) {
    World world;
    const auto four = world.all(4);
    std::array<CommunicatorHandle, 4> parts{};
    const std::array colors{7, 3, 7, kNoColor};
    const std::array keys{5, 0, 1, 0};
    for (int times = 0; times < 2; ++times) {
        Group::mine().start();
        for (int own = 0; own < 4; ++own)
            World::expect(
                split(world.library, four[own], colors.at(own), keys.at(own), &parts.at(own), nullptr),
                Result::success);
        World::expect(Group::mine().end(world.library), Result::success);
        assert_int_equal(number(count, world, parts[0]), 2);
        assert_int_equal(number(rank, world, parts[0]), 1);
        assert_int_equal(number(rank, world, parts[2]), 0);
        assert_int_equal(number(count, world, parts[1]), 1);
        assert_null(parts[3]);
    }
    // 4 at first, and 3 each time: none has met one of another time.
    assert_int_equal(world.driver.joined(), 10);
    World::expect(split(world.library, four[0], -2, 0, parts.data(), nullptr), Result::invalid_argument);
    World::expect(split(world.library, four[0], 0, 0, nullptr, nullptr), Result::invalid_argument, "newcomm");
}

void a_shrunk_communicator_has_the_others(void ** /*state*/) {
    World world;
    const auto four = world.all(4);
    std::array<CommunicatorHandle, 4> rest{};
    const std::array excluded{2, 0};
    std::array<CommunicatorHandle, 2> before{};
    for (int times = 0; times < 2; ++times) {
        Group::mine().start();
        for (const int own : {1, 3})
            World::expect(shrink(world.library, four[own], excluded.data(), 2, &rest.at(own), nullptr, 0),
                          Result::success);
        World::expect(Group::mine().end(world.library), Result::success);
        assert_int_equal(number(rank, world, rest[1]), 0);
        assert_int_equal(number(rank, world, rest[3]), 1);
        assert_int_equal(number(count, world, rest[3]), 2);
        assert_ptr_not_equal(rest[1], before[0]);
        before = {rest[1], rest[3]};
    }
    World::expect(shrink(world.library, four[0], excluded.data(), 2, rest.data(), nullptr, 0),
                  Result::invalid_argument, "rank 0 is excluded");
    const std::array wrong{4};
    World::expect(shrink(world.library, four[0], wrong.data(), 1, rest.data(), nullptr, 0),
                  Result::invalid_argument);
    World::expect(shrink(world.library, four[0], wrong.data(), 0, rest.data(), nullptr, 0),
                  Result::invalid_argument);
    World::expect(shrink(world.library, four[1], excluded.data(), 2, rest.data(), nullptr, 2),
                  Result::invalid_argument, "flags");
}

void a_grown_communicator_has_more(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    std::array<CommunicatorHandle, 2> parents{two[0], two[1]};
    for (int more = 1; more <= 2; ++more) {
        const int size = 2 + more;
        UniqueId id{};
        World::expect(grow_id(world.library, parents[1], &id), Result::success);
        std::array<CommunicatorHandle, 4> all{};
        Group::mine().start();
        // Whoever has asked for the id may give it, too.
        World::expect(grow(world.library, parents[0], size, nullptr, -1, all.data(), nullptr),
                      Result::success);
        World::expect(grow(world.library, parents[1], size, &id, -1, &all[1], nullptr), Result::success);
        for (int own = 2; own < size; ++own)
            World::expect(grow(world.library, nullptr, size, &id, own, &all.at(own), nullptr),
                          Result::success);
        World::expect(Group::mine().end(world.library), Result::success);
        for (int own = 0; own < size; ++own) {
            assert_int_equal(number(rank, world, all.at(own)), own);
            assert_int_equal(number(count, world, all.at(own)), size);
        }
        // An id is good for one time.
        World::expect(grow(world.library, parents[1], size, &id, -1, all.data(), nullptr),
                      Result::invalid_argument, "not what ncclCommGetUniqueId has last given");
    }
    assert_int_equal(number(count, world, two[0]), 2);
}

void ids_of_growing_are_not_those_of_the_environment(void ** /*state*/) {
    World world;
    const auto one = world.one();
    setenv("NCCL_COMM_ID", "127.0.0.1:4711", 1);
    const auto agreed = new_unique_id().value();
    UniqueId id{};
    World::expect(grow_id(world.library, one, &id), Result::success);
    unsetenv("NCCL_COMM_ID");
    assert_memory_not_equal(&id, &agreed, sizeof(id));
}

void wrong_growth_is_refused(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    CommunicatorHandle made = nullptr;
    UniqueId id{};
    World::expect(grow_id(world.library, nullptr, &id), Result::invalid_argument, "comm argument is NULL");
    World::expect(grow_id(world.library, two[0], nullptr), Result::invalid_argument, "uniqueId argument");
    World::expect(grow_id(world.library, two[0], &id), Result::success);
    World::expect(grow(world.library, two[0], 2, nullptr, -1, &made, nullptr), Result::invalid_argument,
                  "2 ranks cannot grow to 2");
    World::expect(grow(world.library, two[0], 1 << 20, nullptr, -1, &made, nullptr),
                  Result::invalid_argument);
    World::expect(grow(world.library, two[0], 3, nullptr, 0, &made, nullptr), Result::invalid_argument,
                  "existing ranks must pass rank=-1, got 0");
    World::expect(grow(world.library, two[0], 3, nullptr, -1, nullptr, nullptr), Result::invalid_argument,
                  "newcomm");
    World::expect(grow(world.library, nullptr, 3, nullptr, 2, &made, nullptr), Result::invalid_argument);
    World::expect(grow(world.library, nullptr, 3, &id, 3, &made, nullptr), Result::invalid_argument);
    World::expect(grow(world.library, nullptr, 3, &id, -1, &made, nullptr), Result::invalid_argument);
    assert_null(made);
    assert_int_equal(world.driver.joined(), 2);
    // None of them counts.
    UniqueId again{};
    World::expect(grow_id(world.library, two[1], &again), Result::success);
    assert_memory_equal(&id, &again, sizeof(id));
}

void after_a_failure_the_others_shrink(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    world.driver.fail_all(Result::remote_error, "rank 1 is gone");
    auto now = Result::success;
    World::expect(async_error(world.library, two[0], &now), Result::success);
    World::expect(now, Result::remote_error, "rank 1 is gone");
    world.driver.fail_all(Result::success, "");
    const int gone = 1;
    CommunicatorHandle rest = nullptr;
    World::expect(shrink(world.library, two[0], &gone, 1, &rest, nullptr, 0), Result::remote_error);
    World::expect(shrink(world.library, two[0], &gone, 1, &rest, nullptr, kShrinkAbort), Result::success);
    assert_int_equal(number(count, world, rest), 1);
}

void a_failure_is_the_result_of_all_that_follows(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    world.driver.fail_all(Result::remote_error, "rank 1 is gone");
    auto now = Result::success;
    World::expect(async_error(world.library, two[0], &now), Result::success);
    world.driver.fail_all(Result::success, "");
    int out = 0;
    World::expect(count(world.library, two[0], &out), Result::remote_error);
    World::expect(perform(world.library, Call{.kind = Kind::send, .communicator = two[0]}),
                  Result::remote_error);
    World::expect(finalize(world.library, two[0]), Result::remote_error);
    World::expect(destroy(world.library, two[0]), Result::remote_error);
    World::expect(singularity::nccl::abort(world.library, two[0]), Result::success);
    World::expect(count(world.library, two[1], &out), Result::success);
}

void the_end_waits_for_what_was_issued(void ** /*state*/) {
    World world;
    const auto one = world.one();
    World::expect(perform(world.library, Call{.kind = Kind::send, .communicator = one}), Result::success);
    world.driver.complete_nothing(true);
    setenv("SINGULARITY_NCCL_TIMEOUT", "1", 1);
    World::expect(finalize(world.library, one), Result::system_error, "the end of 1 groups");
    unsetenv("SINGULARITY_NCCL_TIMEOUT");
    assert_true(world.driver.left(false).empty());
    const auto other = world.one();
    world.driver.complete_nothing(false);
    World::expect(destroy(world.library, other), Result::success);
    assert_int_equal(world.driver.left(false).size(), 1);
    World::expect(destroy(world.library, nullptr), Result::success);
    World::expect(finalize(world.library, nullptr), Result::success);
}

void a_revoked_communicator_only_has_children(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    World::expect(revoke(world.library, two[0], 1), Result::invalid_argument);
    for (const auto one : two)
        World::expect(revoke(world.library, one, kRevokeDefault), Result::success);
    World::expect(revoke(world.library, two[0], kRevokeDefault), Result::invalid_argument);
    World::expect(perform(world.library, Call{.kind = Kind::send, .communicator = two[0]}),
                  Result::invalid_usage, "Send: communicator was revoked");
    World::expect(finalize(world.library, two[0]), Result::invalid_argument);
    std::array<CommunicatorHandle, 2> parts{};
    Group::mine().start();
    for (int own = 0; own < 2; ++own)
        World::expect(split(world.library, two[own], 0, -own, &parts.at(own), nullptr), Result::success);
    World::expect(Group::mine().end(world.library), Result::success);
    assert_int_equal(number(rank, world, parts[0]), 1);
    assert_int_equal(number(rank, world, parts[1]), 0);
    for (const auto one : two)
        World::expect(destroy(world.library, one), Result::success);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_several_threads_meet),
        cmocka_unit_test(ranks_of_one_thread_meet_in_a_group),
        cmocka_unit_test(wrong_ranks_are_refused),
        cmocka_unit_test(who_does_not_wait_asks),
        cmocka_unit_test(blocking_and_not_do_not_mix_in_a_group),
        cmocka_unit_test(an_abort_ends_what_waits),
        cmocka_unit_test(waiting_ends_at_its_limit),
        cmocka_unit_test(splits_order_ranks_by_key_and_rank),
        cmocka_unit_test(a_shrunk_communicator_has_the_others),
        cmocka_unit_test(a_grown_communicator_has_more),
        cmocka_unit_test(ids_of_growing_are_not_those_of_the_environment),
        cmocka_unit_test(wrong_growth_is_refused),
        cmocka_unit_test(after_a_failure_the_others_shrink),
        cmocka_unit_test(a_failure_is_the_result_of_all_that_follows),
        cmocka_unit_test(the_end_waits_for_what_was_issued),
        cmocka_unit_test(a_revoked_communicator_only_has_children),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
