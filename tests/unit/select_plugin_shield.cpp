// SPDX-License-Identifier: GPL-2.0-or-later
// Whom Slurm's own preemption leaves alone, and what of it passes from the planner to slurmctld.
#include "cmocka.hpp"
#include "common/log.hpp"
#include "dispatch.hpp"
#include "select-plugin/protection.hpp"
#include "select-plugin/synthetic.hpp"
#include "shield.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace singularity;
using test::expect_contains;
using test::expect_equal;
using test::SyntheticJob;

constexpr std::time_t kNow = 1700000000;

Protection some() {
    return {.until = kNow + 60, .newest = 90, .served = {7, 9}, .waiting = {5}, .covered = {1, 2, 3}};
}

void what_is_written_is_read_again(void **) {
    const auto text = some().write();
    expect_equal(text, "singularity-planner protection 1\nuntil 1700000060\nnewest 90\nserved 7 9\nwaiting "
                       "5\ncovered 1 2 3\n");
    auto read = Protection::parse(text, "p");
    assert_true(read.has_value() && *read == some());
    const Protection nothing{.until = kNow, .newest = 0, .served = {}, .waiting = {}, .covered = {}};
    read = Protection::parse(nothing.write(), "p");
    assert_true(read.has_value() && *read == nothing);
}

void what_is_wrong_is_named(void **) {
    const struct {
        std::string_view before, after, words;
    } cases[] = {
        {"protection 1", "protection 2",
         "cannot read p: line 1: expected 'singularity-planner protection 1'"},
        {"until 17", "until x17", "line 2: expected 'until' and a number, found 'until x1700000060'"},
        {"newest 90", "newest 90 1", "line 3: expected 'newest' and a number, found 'newest 90 1'"},
        {"newest 90", "newest 99999999999", "line 3"},
        {"served 7 9", "served 9 7", "line 4: expected 'served' and ascending numbers, found 'served 9 7'"},
        {"waiting 5", "waiting 5 ", "line 5: expected 'waiting'"},
        {"waiting 5", "waiting  5", "line 5: expected 'waiting'"},
        {"covered 1 2 3", "covered 1 2 2", "line 6"},
        {"covered 1 2 3\n", "", "line 6: expected 'covered' and ascending numbers, found ''"},
    };
    for (const auto &one : cases) {
        auto text = some().write();
        text.replace(text.find(one.before), one.before.size(), one.after);
        const auto read = Protection::parse(text, "p");
        assert_false(read.has_value());
        expect_contains(read.error().message(), one.words);
        assert_int_equal(read.error().code, EINVAL);
    }
}

void whom_a_job_may_preempt(void **) {
    const auto protection = some();
    assert_true(protection.spared_for(7, kNow) == Spared::kAll);
    assert_true(protection.spared_for(91, kNow) == Spared::kAll); // not seen yet
    assert_true(protection.spared_for(5, kNow) == Spared::kCovered);
    assert_true(protection.spared_for(90, kNow) == Spared::kNobody);
    assert_true(protection.spared_for(7, kNow + 60) == Spared::kNobody); // the planner has died
    assert_true(protection.covers(2));
    assert_false(protection.covers(4));
}

// Slurm's lists, as far as they are used.
using Elements = std::vector<void *>;
int living_lists = 0;

Elements &elements(hooks::List *list) { return *reinterpret_cast<Elements *>(list); }

constexpr host::Lists kLists{
    .create =
        [](void (*destroy)(void *)) {
            assert_null(destroy); // jobs are slurmctld's
            ++living_lists;
            return reinterpret_cast<hooks::List *>(new Elements());
        },
    .destroy =
        [](hooks::List *list) {
            --living_lists;
            delete &elements(list);
        },
    .append = [](hooks::List *list, void *element) { elements(list).push_back(element); },
    .count = [](hooks::List *list) { return static_cast<int>(elements(list).size()); },
    .for_each =
        [](hooks::List *list, int (*visit)(void *, void *), void *argument) {
            for (void *const element : elements(list))
                if (visit(element, argument) < 0)
                    return -1;
            return 0;
        },
};

hooks::JobRecord *record(SyntheticJob &job) {
    return static_cast<hooks::JobRecord *>(const_cast<void *>(job.job.address()));
}

struct Slurmctld {
    SyntheticJob one{1};
    SyntheticJob three{3};
    SyntheticJob four{4};
    Elements candidates{record(one), record(three), record(four)};
    Shield shield{kLists};
    Shared shared;

    Slurmctld() {
        shared.install(&shield);
        shared.grant();
    }

    // Ids of those that select/cons_tres may preempt for that job, as text; "null": it is told of none.
    std::string preemptible_for(SyntheticJob &job) {
        auto *const list = reinterpret_cast<hooks::List *>(&candidates);
        std::string out;
        (void)dispatch::job_test(
            &shared, {record(job), nullptr, 1, 1, 1, 0, list, nullptr}, [&](hooks::List *told) {
                if (told == nullptr)
                    out = "null";
                else
                    for (void *const each : elements(told))
                        out += each == record(one) ? "1" : each == record(three) ? "3" : "4";
                return 0;
            });
        assert_int_equal(candidates.size(), 3); // slurmctld's own list is as it was
        assert_int_equal(living_lists, 0);
        return out;
    }
};

void candidates_of_a_job_test(void **) {
    Slurmctld slurmctld;
    SyntheticJob served(7);
    SyntheticJob waiting(5);
    SyntheticJob other(80);
    expect_equal(slurmctld.preemptible_for(served), "134"); // there is no planner
    auto protection = some();
    protection.until = std::time(nullptr) + 1000;
    slurmctld.shield.learn(protection);
    expect_equal(slurmctld.preemptible_for(served), "null");
    expect_equal(slurmctld.preemptible_for(waiting), "4");
    expect_equal(slurmctld.preemptible_for(other), "134");
    protection.covered.push_back(4);
    slurmctld.shield.learn(protection);
    expect_equal(slurmctld.preemptible_for(waiting), "null");
    protection.until = std::time(nullptr) - 1;
    slurmctld.shield.learn(protection);
    expect_equal(slurmctld.preemptible_for(waiting), "134");
    assert_true(slurmctld.shared.trust() == Trust::kTrusted);
}

void what_is_no_job_ends_all_decisions(void **) {
    Slurmctld slurmctld;
    auto protection = some();
    protection.until = std::time(nullptr) + 1000;
    slurmctld.shield.learn(protection);
    SyntheticJob waiting(5);
    slurmctld.three.job.store(records::kJobLayout.magic_offset, 0xdeadbeefU);
    log::set_sink([](log::Level, std::string_view line) { expect_contains(line, "candidates"); });
    expect_equal(slurmctld.preemptible_for(waiting), "134");
    log::set_sink(nullptr);
    assert_true(slurmctld.shared.trust() == Trust::kForwarding);
}

std::vector<std::string> &lines() {
    static std::vector<std::string> all;
    return all;
}

void file_of_the_planner(void **) {
    const auto path = std::filesystem::temp_directory_path() / ("protection-" + std::to_string(getpid()));
    Slurmctld slurmctld;
    SyntheticJob served(7);
    ProtectionReader reader(path, slurmctld.shield);
    lines().clear();
    log::set_sink([](log::Level, std::string_view line) { lines().emplace_back(line); });
    const auto write = [&](std::string_view text) {
        std::filesystem::remove(path);
        std::ofstream(path) << text;
    };
    auto protection = some();
    protection.until = std::time(nullptr) + 1000;
    assert_true(reader.step() == ProtectionReader::kEvery);
    assert_true(lines().empty()); // no planner is no error
    write(protection.write());
    reader.step();
    expect_equal(slurmctld.preemptible_for(served), "null");
    write("something else");
    reader.step();
    reader.step();
    assert_int_equal(lines().size(), 1);
    expect_contains(lines().front(), "line 1: expected 'singularity-planner protection 1', found 'something");
    expect_equal(slurmctld.preemptible_for(served), "null"); // what was learnt last
    write(protection.write());
    std::filesystem::permissions(path, std::filesystem::perms::all);
    reader.step();
    expect_contains(lines().back(), "expected a file that only its owner may write, found mode 0777");
    std::filesystem::remove(path);
    reader.step();
    expect_equal(slurmctld.preemptible_for(served), "134"); // the planner has ended
    log::set_sink(nullptr);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(whom_a_job_may_preempt),
        cmocka_unit_test(candidates_of_a_job_test),
        cmocka_unit_test(what_is_no_job_ends_all_decisions),
        cmocka_unit_test(file_of_the_planner),
    };
    return cmocka_run_group_tests_name("select_plugin_shield", tests, nullptr, nullptr);
}
