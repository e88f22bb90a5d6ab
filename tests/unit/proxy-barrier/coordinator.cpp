// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/barrier/coordinator.hpp"

#include "cmocka.hpp"

#include <chrono>
#include <vector>

namespace {

using namespace singularity;
using barrier::Coordinator;
using barrier::Key;
using barrier::Kind;
using barrier::Line;
using barrier::Report;

constexpr Key kCommunicator{.words = {7, 7}};

Key process(std::uint32_t rank) { return {.words = {100 + rank, 0}}; }

Report report(std::uint32_t rank, std::uint32_t size, std::uint64_t round, std::uint64_t collectives) {
    return {.process = process(rank),
            .barrier = 1,
            .round = round,
            .settled = true,
            .pid = 1000 + static_cast<int>(rank),
            .members = {{.communicator = kCommunicator, .rank = rank, .size = size}},
            .issued = {{.line = {.communicator = kCommunicator, .rank = rank}, .number = collectives}},
            .doing = {}};
}

Line line(std::uint32_t rank, Kind kind, std::uint32_t peer) {
    return {.communicator = kCommunicator, .rank = rank, .peer = peer, .kind = kind};
}

void level_ranks_are_a_cut(void ** /*state*/) {
    Coordinator coordinator(1);
    const std::vector reports{report(0, 2, 1, 5), report(1, 2, 1, 5)};
    const auto decision = coordinator.decide(reports);
    assert_true(decision.has_value());
    assert_true(decision->complete);
}

void who_is_behind_is_told_the_highest_count(void ** /*state*/) {
    Coordinator coordinator(1);
    const std::vector reports{report(0, 3, 1, 5), report(1, 3, 1, 7), report(2, 3, 1, 7)};
    const auto decision = coordinator.decide(reports);
    assert_true(decision.has_value());
    assert_false(decision->complete);
    const auto &request = decision->requests.at(process(0));
    assert_int_equal(request.round, 2);
    assert_int_equal(request.targets.size(), 1);
    assert_true(request.targets[0].line == line(0, Kind::collective, 0));
    assert_int_equal(request.targets[0].number, 7);
    assert_true(decision->requests.at(process(1)).targets.empty());
    test::expect_contains(coordinator.behind(), "pid 1000, rank 0 of 3");
    test::expect_contains(coordinator.behind(), "5 of 7 collectives");
}

// A receiver that has not begun has no line: it is told one.
void both_sides_of_a_pair_must_agree(void ** /*state*/) {
    Coordinator coordinator(1);
    auto sender = report(0, 2, 1, 1);
    sender.issued.push_back({.line = line(0, Kind::send, 1), .number = 3});
    const std::vector reports{sender, report(1, 2, 1, 1)};
    const auto decision = coordinator.decide(reports);
    assert_true(decision.has_value());
    assert_false(decision->complete);
    const auto &targets = decision->requests.at(process(1)).targets;
    assert_int_equal(targets.size(), 1);
    assert_true(targets[0].line == line(1, Kind::receive, 0));
    assert_int_equal(targets[0].number, 3);
}

void a_member_that_has_left_is_not_waited_for(void ** /*state*/) {
    Coordinator coordinator(1);
    auto gone = report(1, 2, 1, 2);
    gone.members.clear();
    const std::vector reports{report(0, 2, 1, 5), gone};
    const auto decision = coordinator.decide(reports);
    assert_true(decision.has_value());
    assert_true(decision->complete);
}

void the_unsettled_are_waited_for(void ** /*state*/) {
    Coordinator coordinator(1);
    std::vector reports{report(0, 2, 1, 5), report(1, 2, 1, 5)};
    reports[1].settled = false;
    reports[1].doing = "issues a group";
    const auto decision = coordinator.decide(reports);
    assert_true(decision.has_value());
    assert_false(decision->complete);
    test::expect_contains(coordinator.behind(), "pid 1001 does not come to its gate: issues a group");
}

void those_who_stand_may_step_when_nothing_moves(void ** /*state*/) {
    Coordinator coordinator(1);
    const auto round = [](std::uint64_t number) {
        std::vector reports{report(0, 2, number, 5), report(1, 2, number, 4)};
        reports[0].held = true;
        reports[1].settled = false;
        return reports;
    };
    const auto first = coordinator.decide(round(1));
    assert_true(first.has_value());
    assert_false(first->requests.at(process(0)).step);
    const auto second = coordinator.decide(round(2));
    assert_true(second.has_value());
    assert_true(second->requests.at(process(0)).step);
    assert_false(second->requests.at(process(1)).step);
}

// Who waits in a group for one that the same round holds is not waited for long; those who are behind are.
void the_first_round_is_short(void ** /*state*/) {
    using namespace std::chrono_literals;
    Coordinator coordinator(1);
    assert_true(coordinator.patience(1s) < 1s);
    assert_true(coordinator.patience(1ms) == 1ms);
    auto reports = std::vector{report(0, 2, 1, 5), report(1, 2, 1, 4)};
    reports[0].settled = false; // it waits for the other
    const auto decision = coordinator.decide(reports);
    assert_true(decision.has_value());
    assert_int_equal(decision->requests.at(process(1)).targets.size(), 1);
    assert_true(coordinator.patience(1s) == 1s);
}

void contradictions_are_refused(void ** /*state*/) {
    const auto refuse = [](std::vector<Report> reports, std::string_view why) {
        Coordinator coordinator(1);
        const auto decision = coordinator.decide(reports);
        assert_false(decision.has_value());
        test::expect_contains(decision.error().message(), why);
    };
    refuse({report(0, 2, 1, 1), report(1, 3, 1, 1)}, "others have a size of 2");
    auto twice = report(0, 2, 1, 1);
    twice.process = process(1);
    refuse({report(0, 2, 1, 1), twice}, "two members of rank 0");
    refuse({report(0, 2, 2, 1)}, "its answer is for round 2, not 1");
    // Of another's member nobody can say anything.
    Coordinator coordinator(1);
    auto liar = report(0, 2, 1, 1);
    liar.issued.push_back({.line = line(1, Kind::collective, 0), .number = 99});
    liar.issued.push_back({.line = line(0, Kind::send, 77), .number = 99});
    const auto decision = coordinator.decide(std::vector{liar, report(1, 2, 1, 1)});
    assert_true(decision.has_value());
    assert_true(decision->complete);
}

void totals_are_compared_where_the_lines_are_the_same(void ** /*state*/) {
    const auto total = [](std::vector<Report> reports) { return barrier::total_of(reports); };
    const auto before = total({report(0, 2, 1, 5), report(1, 2, 1, 5)});
    assert_int_equal(before.operations, 10);
    // Whoever reports first.
    assert_true(before == total({report(1, 2, 3, 5), report(0, 2, 3, 5)}));
    const auto later = total({report(0, 2, 1, 9), report(1, 2, 1, 8)});
    assert_true(later.lines == before.lines && later.operations == 17);
    // A rank sends for the first time; a rank has left; another communicator.
    auto sender = report(0, 2, 1, 5);
    sender.issued.push_back({.line = line(0, Kind::send, 1), .number = 1});
    auto elsewhere = report(1, 2, 1, 5);
    elsewhere.issued[0].line.communicator = {.words = {7, 8}};
    for (const auto &others : {total({sender, report(1, 2, 1, 5)}), total({report(0, 2, 1, 5)}),
                               total({report(0, 2, 1, 5), elsewhere}), total({})})
        assert_true(others.lines != before.lines);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(level_ranks_are_a_cut),
        cmocka_unit_test(who_is_behind_is_told_the_highest_count),
        cmocka_unit_test(both_sides_of_a_pair_must_agree),
        cmocka_unit_test(a_member_that_has_left_is_not_waited_for),
        cmocka_unit_test(the_unsettled_are_waited_for),
        cmocka_unit_test(those_who_stand_may_step_when_nothing_moves),
        cmocka_unit_test(the_first_round_is_short),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(totals_are_compared_where_the_lines_are_the_same),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
