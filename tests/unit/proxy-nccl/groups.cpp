// SPDX-License-Identifier: GPL-2.0-or-later
// What is done together, in which order, and what becomes of errors in between.
#include "collective.hpp"
#include "fixture.hpp"
#include "suspension.hpp"

#include <map>
#include <mutex>
#include <set>
#include <string>

using namespace singularity;
using namespace singularity::test;

namespace {

Call sum(CommunicatorHandle communicator, int device, std::uintptr_t stream = 3) {
    return {.kind = Kind::all_reduce,
            .input = memory_of(device),
            .output = memory_of(device),
            .count = 10,
            .type = DataType::int32,
            .communicator = communicator,
            .stream = stream_of(stream)};
}

void nothing_is_issued_before_the_outermost_end(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    auto &group = Group::mine();
    group.start();
    group.start();
    World::expect(perform(world.library, sum(two[0], 0)), Result::success);
    World::expect(perform(world.library, sum(two[1], 1)), Result::success);
    World::expect(perform(world.library, sum(two[0], 0)), Result::success);
    World::expect(group.end(world.library), Result::success);
    assert_true(world.driver.issued().empty());
    World::expect(group.end(world.library), Result::success);
    const auto issued = world.driver.issued();
    assert_int_equal(issued.size(), 2);
    assert_int_equal(issued[0].operations.size(), 2);
    assert_int_equal(issued[1].operations.size(), 1);
    World::expect(perform(world.library, sum(two[0], 0)), Result::success);
    assert_int_equal(world.driver.issued().back().group, 2);
    World::expect(group.end(world.library), Result::invalid_usage, "not in a group call");
}

void an_error_in_a_group_drops_all_of_it(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    auto &group = Group::mine();
    group.start();
    World::expect(perform(world.library, sum(two[0], 0)), Result::success);
    auto wrong = sum(two[1], 1);
    wrong.peer = 9;
    World::expect(perform(world.library, wrong), Result::invalid_argument);
    wrong.communicator = nullptr;
    World::expect(perform(world.library, wrong), Result::invalid_argument);
    World::expect(perform(world.library, sum(two[1], 1)), Result::success);
    World::expect(group.end(world.library), Result::invalid_argument);
    assert_true(world.driver.issued().empty());
    // The next group knows nothing of it.
    World::expect(perform(world.library, sum(two[0], 0)), Result::success);
    assert_int_equal(world.driver.issued().size(), 1);
    assert_int_equal(world.driver.issued()[0].group, 1);
}

void long_groups_travel_in_pieces(void ** /*state*/) {
    World world;
    const auto one = world.one();
    auto &group = Group::mine();
    group.start();
    for (int times = 0; times < 2500; ++times)
        World::expect(perform(world.library, sum(one, 0)), Result::success);
    World::expect(group.end(world.library), Result::success);
    const auto issued = world.driver.issued();
    assert_int_equal(issued.size(), 1);
    assert_true(issued[0].sizes == (std::vector<std::uint64_t>{1024, 1024, 452}));
    assert_int_equal(issued[0].operations.size(), 2500);
}

void streams_of_a_group_wait_for_each_other(void ** /*state*/) {
    World world;
    const auto one = world.one();
    auto &group = Group::mine();
    group.start();
    for (const std::uintptr_t stream : {0x10, 0x20, 0x10, 0x30})
        World::expect(perform(world.library, sum(one, 0, stream)), Result::success);
    World::expect(group.end(world.library), Result::success);
    assert_int_equal(world.driver.issued()[0].stream, 0x11);
    assert_true(world.driver.ordered() == (std::vector<std::string>{"20>10", "30>10", "10>20", "10>30"}));
}

// Ranks of one group join from threads of their own, where the test cannot be failed.
class CountingGate : public Gate {
  public:
    void join(const barrier::Member &member) override {
        const std::scoped_lock lock(lock_);
        twice += members.insert(member).second ? 0 : 1;
    }
    void leave(const barrier::Member &member) override {
        const std::scoped_lock lock(lock_);
        unknown += members.erase(member) == 1 ? 0 : 1;
    }
    void enter(std::span<const barrier::Line> group) override {
        const std::scoped_lock lock(lock_);
        ++passes;
        ++inside;
        for (const auto &line : group)
            ++counts[line];
    }
    void exit() override {
        const std::scoped_lock lock(lock_);
        --inside;
    }
    // To be looked at when no call is under way.
    std::set<barrier::Member> members;
    std::map<barrier::Line, int> counts;
    int passes = 0;
    int inside = 0;
    int twice = 0;   // members that joined so
    int unknown = 0; // that left

  private:
    std::mutex lock_;
};

void every_group_passes_the_gate_once(void ** /*state*/) {
    FakeDriver driver;
    CountingGate gate;
    Library library(driver, gate);
    std::array<CommunicatorHandle, 3> all{};
    World::expect(init_all(library, all.data(), 3, nullptr), Result::success);
    assert_int_equal(gate.passes, 0);
    const auto key = library.communicators.find(all[0])->key;
    auto &group = Group::mine();
    group.start();
    World::expect(perform(library, sum(all[0], 0)), Result::success);
    World::expect(perform(library, sum(all[0], 0)), Result::success);
    for (const int peer : {1, 1, 2}) {
        auto call = sum(all[0], 0);
        call.kind = Kind::send;
        call.peer = peer;
        World::expect(perform(library, call), Result::success);
        call.kind = Kind::receive;
        World::expect(perform(library, call), Result::success);
    }
    World::expect(perform(library, sum(all[1], 1)), Result::success);
    World::expect(group.end(library), Result::success);
    assert_int_equal(gate.passes, 1);
    assert_int_equal(gate.inside, 0);
    const auto count = [&](std::uint32_t rank, barrier::Kind kind, std::uint32_t peer) {
        return gate.counts[{.communicator = {.words = key}, .rank = rank, .peer = peer, .kind = kind}];
    };
    assert_int_equal(gate.counts.size(), 6);
    assert_int_equal(count(0, barrier::Kind::collective, 0), 2);
    assert_int_equal(count(1, barrier::Kind::collective, 0), 1);
    assert_int_equal(count(0, barrier::Kind::send, 1), 2);
    assert_int_equal(count(0, barrier::Kind::receive, 2), 1);
    assert_int_equal(gate.members.size(), 3);
    assert_int_equal(gate.twice, 0);
    for (auto *const communicator : all)
        World::expect(destroy(library, communicator), Result::success);
    assert_true(gate.members.empty());
    assert_int_equal(gate.unknown, 0);
}

void a_simulated_group_is_not_issued(void ** /*state*/) {
    World world;
    const auto one = world.one();
    auto &group = Group::mine();
    Simulation simulation{
        .size = sizeof(simulation), .magic = kSimulationMagic, .version = kVersion, .estimated_time = -1.0F};
    group.start();
    World::expect(perform(world.library, sum(one, 0)), Result::success);
    World::expect(group.end(world.library, &simulation), Result::success);
    assert_true(simulation.estimated_time > 0.0F);
    assert_true(world.driver.issued().empty());
    simulation.magic = 0;
    group.start();
    World::expect(group.end(world.library, &simulation), Result::invalid_argument,
                  "NCCL_SIM_INFO_INITIALIZER");
    World::expect(perform(world.library, sum(one, 0)), Result::success);
    assert_int_equal(world.driver.issued()[0].group, 1);
}

void a_proxy_that_is_gone_fails_its_communicators(void ** /*state*/) {
    World world;
    const auto one = world.one();
    world.driver.break_messages(true);
    World::expect(perform(world.library, sum(one, 0)), Result::unhandled_cuda_error, "the proxy");
    auto now = Result::success;
    World::expect(async_error(world.library, one, &now), Result::success);
    World::expect(now, Result::unhandled_cuda_error);
}

Call captured_sum(CommunicatorHandle communicator, std::uintptr_t stream = FakeDriver::kCapturing) {
    return sum(communicator, 0, stream);
}

void a_captured_group_is_issued_by_each_launch(void ** /*state*/) {
    FakeDriver driver;
    CountingGate gate;
    Library library(driver, gate);
    std::array<CommunicatorHandle, 1> all{};
    World::expect(init_all(library, all.data(), 1, nullptr), Result::success);
    auto &group = Group::mine();
    group.start();
    for (int times = 0; times < 1500; ++times)
        World::expect(perform(library, captured_sum(all[0])), Result::success);
    World::expect(group.end(library), Result::success);
    assert_true(driver.issued().empty());
    assert_int_equal(gate.passes, 0);
    assert_int_equal(driver.captured.size(), 1);
    const auto &[stream, part] = driver.captured[0];
    assert_int_equal(stream, FakeDriver::kCapturing);
    // In order with what is called, and through the gate as that is.
    World::expect(perform(library, sum(all[0], 0)), Result::success);
    for (std::uintptr_t launch = 1; launch <= 2; ++launch) {
        assert_null(part->unusable());
        assert_null(part->issue(stream_of(0x40 + launch)));
    }
    const auto issued = driver.issued();
    assert_int_equal(issued.size(), 3);
    for (std::uint64_t launch = 1; launch <= 2; ++launch) {
        assert_int_equal(issued[launch].group, launch + 1);
        assert_int_equal(issued[launch].stream, 0x41 + launch);
        assert_true(issued[launch].sizes == (std::vector<std::uint64_t>{1024, 476}));
    }
    assert_int_equal(gate.passes, 3);
    assert_int_equal(gate.inside, 0);
    assert_int_equal(gate.counts.begin()->second, 1 + 2 * 1500);
    World::expect(destroy(library, all[0]), Result::success);
}

void captured_streams_of_a_group_wait_for_each_other(void ** /*state*/) {
    World world;
    const auto one = world.one();
    auto &group = Group::mine();
    group.start();
    for (const auto stream : {FakeDriver::kCapturing, FakeDriver::kAlsoCapturing})
        World::expect(perform(world.library, captured_sum(one, stream)), Result::success);
    World::expect(group.end(world.library), Result::success);
    assert_int_equal(world.driver.captured.size(), 1);
    assert_true(world.driver.ordered() == (std::vector<std::string>{"778>777", "777>778"}));
    assert_null(world.driver.captured[0].second->issue(stream_of(5)));
    assert_int_equal(world.driver.issued()[0].operations.size(), 2);
}

void a_group_is_captured_as_a_whole_or_not_at_all(void ** /*state*/) {
    World world;
    const auto one = world.one();
    auto &group = Group::mine();
    for (const bool first : {true, false}) {
        group.start();
        World::expect(perform(world.library, first ? captured_sum(one) : sum(one, 0)), Result::success);
        World::expect(perform(world.library, first ? sum(one, 0) : captured_sum(one)), Result::invalid_usage,
                      first ? "stream 0x3 is not being captured, and other streams of the group are"
                            : "stream 0x777 is being captured, and other streams of the group are not");
        World::expect(group.end(world.library), Result::invalid_usage);
    }
    assert_true(world.driver.captured.empty());
    assert_true(world.driver.issued().empty());
    World::expect(perform(world.library, captured_sum(one)), Result::success); // nothing is left of it
    assert_int_equal(world.driver.captured.size(), 1);
}

void a_launch_says_what_has_become_of_its_communicator(void ** /*state*/) {
    struct Case {
        Result (*change)(World &world, CommunicatorHandle one);
        std::string_view words;
    };
    const auto cases = std::to_array<Case>({
        {[](World &world, CommunicatorHandle one) { return destroy(world.library, one); },
         "has been destroyed or aborted"},
        {[](World &world, CommunicatorHandle one) { return abort(world.library, one); },
         "has been destroyed or aborted"},
        {[](World &world, CommunicatorHandle one) { return finalize(world.library, one); },
         "has been finalized or revoked"},
        {[](World &world, CommunicatorHandle one) { return revoke(world.library, one, 0); },
         "has been finalized or revoked"},
        {[](World &world, CommunicatorHandle one) { return suspend(world.library, one, kSuspendMemory); },
         "is suspended"},
        {[](World &world, CommunicatorHandle one) {
             world.driver.fail_all(Result::remote_error, "rank 1 is gone");
             auto now = Result::success;
             return async_error(world.library, one, &now);
         },
         "has failed: remote process exited"},
    });
    for (const auto &[change, words] : cases) {
        World world;
        const auto one = world.one();
        World::expect(perform(world.library, captured_sum(one)), Result::success);
        auto &part = *world.driver.captured[0].second;
        assert_null(part.unusable());
        World::expect(change(world, one), Result::success);
        const char *const why = part.unusable();
        assert_non_null(why);
        expect_contains(why, words);
        assert_true(world.driver.issued().empty());
    }
}

void what_cannot_be_captured_or_issued_is_an_error(void ** /*state*/) {
    World world;
    const auto one = world.one();
    World::expect(perform(world.library, captured_sum(one)), Result::success);
    world.driver.break_messages(true);
    World::expect(perform(world.library, captured_sum(one)), Result::unhandled_cuda_error,
                  "the proxy is gone");
    expect_contains(world.driver.captured[0].second->issue(stream_of(4)), "the proxy");
    expect_contains(world.driver.captured[0].second->issue(stream_of(FakeDriver::kUnknownStream)),
                    "a stream");
    auto now = Result::success;
    World::expect(async_error(world.library, one, &now), Result::success);
    World::expect(now, Result::unhandled_cuda_error);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_issued_before_the_outermost_end),
        cmocka_unit_test(an_error_in_a_group_drops_all_of_it),
        cmocka_unit_test(long_groups_travel_in_pieces),
        cmocka_unit_test(streams_of_a_group_wait_for_each_other),
        cmocka_unit_test(every_group_passes_the_gate_once),
        cmocka_unit_test(a_simulated_group_is_not_issued),
        cmocka_unit_test(a_proxy_that_is_gone_fails_its_communicators),
        cmocka_unit_test(a_captured_group_is_issued_by_each_launch),
        cmocka_unit_test(captured_streams_of_a_group_wait_for_each_other),
        cmocka_unit_test(a_group_is_captured_as_a_whole_or_not_at_all),
        cmocka_unit_test(a_launch_says_what_has_become_of_its_communicator),
        cmocka_unit_test(what_cannot_be_captured_or_issued_is_an_error),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
