// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/barrier/gate.hpp"

#include "cmocka.hpp"
#include "proxy/barrier/coordinator.hpp"

#include <atomic>
#include <thread>
#include <vector>

namespace {

using namespace singularity;
using barrier::Gate;
using barrier::Key;
using barrier::Line;
using barrier::Request;

constexpr Key kCommunicator{.words = {7, 7}};
constexpr std::chrono::seconds kPatience{60};

Line line(std::uint32_t rank) { return {.communicator = kCommunicator, .rank = rank}; }

Request hold(std::uint64_t round) { return {.barrier = 1, .round = round, .targets = {}}; }

std::uint64_t issued(const barrier::Report &report) {
    return report.issued.empty() ? 0 : report.issued[0].number;
}

void a_closed_gate_holds_until_its_target(void ** /*state*/) {
    Gate gate({.words = {1, 1}});
    gate.join({.communicator = kCommunicator, .rank = 0, .size = 2});
    const std::vector group{line(0)};
    gate.enter(group);
    gate.exit();
    auto report = gate.serve(hold(1), Deadline::after(kPatience));
    assert_true(report.settled);
    assert_int_equal(issued(report), 1);
    std::atomic<int> passed = 0;
    std::thread program([&] {
        for (int round = 0; round < 3; ++round) {
            gate.enter(group);
            ++passed;
            gate.exit();
        }
    });
    // Two more, and not a third.
    auto more = hold(2);
    more.targets.push_back({.line = line(0), .number = 3});
    report = gate.serve(more, Deadline::after(kPatience));
    assert_true(report.settled);
    assert_int_equal(issued(report), 3);
    assert_int_equal(passed.load(), 2);
    report = gate.serve(hold(3), Deadline::after(kPatience));
    assert_int_equal(issued(report), 3);
    static_cast<void>(gate.serve({.action = Request::Action::release, .barrier = 1, .targets = {}},
                                 Deadline::after(kPatience)));
    program.join();
    assert_int_equal(passed.load(), 3);
}

void an_answer_waits_for_who_is_passing(void ** /*state*/) {
    Gate gate({.words = {1, 1}});
    gate.join({.communicator = kCommunicator, .rank = 0, .size = 2});
    const std::vector group{line(0)};
    gate.enter(group);
    auto report = gate.serve(hold(1), Deadline::after({}));
    assert_false(report.settled);
    test::expect_contains(report.doing, "issues a group");
    std::thread program([&] { gate.exit(); });
    report = gate.serve(hold(2), Deadline::after(kPatience));
    program.join();
    assert_true(report.settled);
    test::expect_contains(report.doing, "outside of NCCL");
}

void an_opened_gate_lets_everybody_through(void ** /*state*/) {
    Gate gate({.words = {1, 1}});
    gate.join({.communicator = kCommunicator, .rank = 0, .size = 2});
    static_cast<void>(gate.serve(hold(1), Deadline::after(kPatience)));
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int number = 0; number < 4; ++number)
        threads.emplace_back([&] {
            gate.enter(std::vector{line(0)});
            gate.exit();
        });
    gate.open();
    for (auto &thread : threads)
        thread.join();
    // An old release means nothing to a later barrier.
    static_cast<void>(gate.serve({.barrier = 2, .round = 1, .targets = {}}, Deadline::after(kPatience)));
    static_cast<void>(gate.serve({.action = Request::Action::release, .barrier = 1, .targets = {}},
                                 Deadline::after(kPatience)));
    const auto report = gate.serve({.barrier = 2, .round = 2, .targets = {}}, Deadline::after(kPatience));
    assert_true(report.settled);
    assert_int_equal(issued(report), 4);
}

void who_waits_for_a_left_communicator_goes_on(void ** /*state*/) {
    Gate gate({.words = {1, 1}});
    const barrier::Member member{.communicator = kCommunicator, .rank = 0, .size = 2};
    gate.join(member);
    auto request = hold(1);
    request.targets.push_back({.line = line(0), .number = 3});
    auto report = gate.serve(request, Deadline::after({}));
    assert_false(report.settled);
    gate.leave(member);
    report = gate.serve(hold(2), Deadline::after(kPatience));
    assert_true(report.settled);
    assert_true(report.members.empty() && report.issued.empty());
}

// Threads as ranks, with a barrier now and then: every cut is level, and all of it ends.
void ranks_that_run_are_cut_again_and_again(void ** /*state*/) {
    constexpr std::uint32_t kRanks = 4;
    constexpr std::uint64_t kEach = 2000;
    std::vector<std::unique_ptr<Gate>> gates;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        gates.push_back(std::make_unique<Gate>(Key{.words = {rank, 1}}));
        gates.back()->join({.communicator = kCommunicator, .rank = rank, .size = kRanks});
    }
    std::vector<std::thread> ranks;
    ranks.reserve(kRanks);
    for (std::uint32_t rank = 0; rank < kRanks; ++rank)
        ranks.emplace_back([&gate = *gates[rank], rank] {
            const std::vector group{line(rank)};
            for (std::uint64_t number = 0; number < kEach; ++number) {
                gate.enter(group);
                std::this_thread::yield();
                gate.exit();
            }
        });
    std::uint64_t cut = 0;
    for (std::uint64_t number = 1; cut < kEach; ++number) {
        barrier::Coordinator coordinator(number);
        std::vector<Request> requests(kRanks, coordinator.first());
        for (bool complete = false; !complete;) {
            std::vector<barrier::Report> reports;
            reports.reserve(kRanks);
            for (std::uint32_t rank = 0; rank < kRanks; ++rank)
                reports.push_back(gates[rank]->serve(requests[rank], Deadline::after(kPatience)));
            const auto decision = coordinator.decide(reports);
            assert_true(decision.has_value());
            complete = decision->complete;
            for (std::uint32_t rank = 0; rank < kRanks; ++rank)
                requests[rank] = decision->requests.at({.words = {rank, 1}});
            if (complete)
                cut = issued(reports[0]);
        }
        for (auto &gate : gates)
            static_cast<void>(gate->serve(coordinator.release(), Deadline::after(kPatience)));
    }
    for (auto &rank : ranks)
        rank.join();
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_closed_gate_holds_until_its_target),
        cmocka_unit_test(an_answer_waits_for_who_is_passing),
        cmocka_unit_test(an_opened_gate_lets_everybody_through),
        cmocka_unit_test(who_waits_for_a_left_communicator_goes_on),
        cmocka_unit_test(ranks_that_run_are_cut_again_and_again),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
