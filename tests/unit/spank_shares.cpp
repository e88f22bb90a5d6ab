// SPDX-License-Identifier: GPL-2.0-or-later
// What each user has of what budgets count, and how what has no room waits.
#include "agent/limits/metrics.hpp"
#include "agent/limits/share.hpp"
#include "agent/slurm/slurm_watch.hpp"
#include "cmocka.hpp"
#include "common/deadline.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity::agent;
using namespace std::chrono_literals;
using singularity::Deadline;
using singularity::UniqueFd;
using singularity::wait_until;
using singularity::test::expect_contains;
using singularity::test::expect_equal;

constexpr uid_t kAlice = 1001;
constexpr uid_t kBob = 1002;

int set_small_limits(void ** /*state*/) {
    auto limits = singularity::Config().per_user;
    limits.workers = 8;
    limits.notes = 16;
    limits.ranks = 10;
    budgets() = Budgets(limits);
    return 0;
}

std::uint64_t refusals(Budget what) { return budgets().refusals().at(static_cast<std::size_t>(what)); }

void a_share_is_taken_as_long_as_it_lives(void ** /*state*/) {
    std::optional<Share> some(std::in_place, Budget::ranks, kAlice, 7);
    Share one(Budget::ranks, kAlice);
    const Share of_bob(Budget::ranks, kBob, 2);
    assert_int_equal(Share::of(Budget::ranks, kAlice), 8);
    assert_int_equal(Share::of(Budget::ranks, kBob), 2);
    assert_int_equal(Share::of(Budget::tasks, kAlice), 0);
    assert_int_equal(held(Budget::ranks).by_all, 10);
    assert_int_equal(held(Budget::ranks).by_one, 8);
    Share moved(std::move(one));
    assert_int_equal(Share::of(Budget::ranks, kAlice), 8);
    moved = Share(Budget::tasks, kAlice);
    assert_int_equal(Share::of(Budget::ranks, kAlice), 7);
    assert_int_equal(Share::of(Budget::tasks, kAlice), 1);
    some.reset();
    assert_int_equal(held(Budget::ranks).by_all, 2);
    const Share none(Budget::ranks, kAlice, 0);
    assert_int_equal(Share::of(Budget::ranks, kAlice), 0);
}

void who_wants_too_much_reads_the_word(void ** /*state*/) {
    const auto before = refusals(Budget::ranks);
    const Share some(Budget::ranks, kAlice, 7);
    assert_false(no_room_for(Budget::ranks, kAlice, 3).has_value());
    const auto why = no_room_for(Budget::ranks, kAlice, 4);
    assert_true(why.has_value());
    expect_equal(*why,
                 "uid 1001 has 7 ranks of jobs that this host coordinates already and wants 4 more, and "
                 "per_user.ranks in singularity.yaml allows 10: destroy jobs that have ended (singularityctl "
                 "ps, destroy)");
    assert_int_equal(refusals(Budget::ranks), before + 1);
    assert_false(no_room_for(Budget::ranks, kBob, 10).has_value());
    assert_false(no_room_for(Budget::ranks, 0, 1000).has_value());
    // A number that does not fit with what there is.
    assert_true(no_room_for(Budget::ranks, kBob, ~std::uint64_t{0}).has_value());
}

struct Child {
    pid_t pid = 0;
    UniqueFd pidfd;
};

Child child_that_waits() {
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    return {.pid = pid, .pidfd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)))};
}

void a_process_counts_until_it_has_ended(void ** /*state*/) {
    std::vector<pid_t> pids;
    for (int number = 0; number < 8; ++number) {
        auto child = child_that_waits();
        pids.push_back(child.pid);
        hold_until_ended(Share(Budget::workers, kAlice), std::move(child.pidfd));
    }
    forget_ended_processes();
    assert_int_equal(Share::of(Budget::workers, kAlice), 8);
    Turn turn;
    const auto before = refusals(Budget::workers);
    assert_false(turn.has_come(Budget::workers, kAlice, "something"));
    assert_false(turn.has_come(Budget::workers, kAlice, "something"));
    assert_int_equal(refusals(Budget::workers), before + 1); // once
    assert_true(Turn().has_come(Budget::workers, kBob, "something else"));
    kill(pids.back(), SIGKILL);
    siginfo_t about{};
    assert_int_equal(waitid(P_PID, static_cast<id_t>(pids.back()), &about, WEXITED | WNOWAIT), 0);
    // Before anybody has looked.
    assert_false(no_room_for(Budget::workers, kAlice).has_value());
    assert_true(turn.has_come(Budget::workers, kAlice, "something"));
    for (const auto pid : pids) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
    forget_ended_processes();
    assert_int_equal(Share::of(Budget::workers, kAlice), 0);
}

// A singularity-slurm that writes down what it is told. Whoever asks it is answered when slurmctld may speak.
class Slurm {
  public:
    Slurm() {
        std::string name = "/tmp/shares-XXXXXX";
        assert_non_null(mkdtemp(name.data()));
        place_ = name;
        const auto program = place_ / "singularity-slurm";
        std::ofstream(program) << "#!/bin/sh\necho \"$*\" >> " << told_file().native()
                               << "\n[ $1 = look ] || exit 0\nuntil [ -e " << speaks_file().native()
                               << " ]; do sleep 0.01; done\necho save=7\n";
        assert_int_equal(chmod(program.c_str(), 0755), 0);
    }
    ~Slurm() { std::filesystem::remove_all(place_); }
    Slurm(const Slurm &) = delete;
    Slurm &operator=(const Slurm &) = delete;
    Slurm(Slurm &&) = delete;
    Slurm &operator=(Slurm &&) = delete;
    [[nodiscard]] Libraries libraries() const { return {.directory = place_, .nccl = {}}; }
    void speak() const { std::ofstream{speaks_file()}; }
    [[nodiscard]] std::vector<std::string> told() const {
        std::vector<std::string> out;
        std::ifstream file(told_file());
        for (std::string line; std::getline(file, line);)
            out.push_back(line);
        return out;
    }

  private:
    [[nodiscard]] std::filesystem::path told_file() const { return place_ / "told"; }
    [[nodiscard]] std::filesystem::path speaks_file() const { return place_ / "speaks"; }
    std::filesystem::path place_;
};

void users_take_turns_in_telling_slurmctld(void ** /*state*/) {
    const Slurm slurm;
    const auto libraries = slurm.libraries();
    SlurmWatch watch(libraries, 0ms);
    const OwnedJob alices{.id = 7, .uid = kAlice};
    const OwnedJob bobs{.id = 8, .uid = kBob};
    const auto before = refusals(Budget::notes);
    for (int number = 0; number < 40; ++number)
        watch.tell(alices, "note", {fmt::format("alice-{}", number)});
    assert_int_equal(refusals(Budget::notes), before + 24);
    assert_int_equal(Share::of(Budget::notes, kAlice), 16);
    watch.tell(bobs, "note", {"bob-0"});
    watch.tell(bobs, "note", {"bob-1"});
    const auto handled = [&] {
        watch.handle([] { return SlurmWatch::Here(); }, [](std::uint32_t /*job*/) {});
        std::vector<pollfd> fds;
        watch.watch(fds);
        poll(fds.data(), fds.size(), 20);
        return fds.empty();
    };
    assert_true(wait_until(handled, Deadline::after(60s), "all to be told").has_value());
    const auto note_of = [](uid_t uid, std::uint32_t job, std::string_view word) {
        return fmt::format("note --owner {} {} {}", uid, job, word);
    };
    std::vector<std::string> expected{note_of(kAlice, 7, "alice-0"), note_of(kBob, 8, "bob-0"),
                                      note_of(kAlice, 7, "alice-1"), note_of(kBob, 8, "bob-1")};
    for (int number = 2; number < 16; ++number)
        expected.push_back(note_of(kAlice, 7, fmt::format("alice-{}", number)));
    const auto told = slurm.told();
    assert_true(told == expected);
    assert_int_equal(held(Budget::notes).by_all, 0);
}

// What it said before the answer reached it is old.
void a_comment_that_has_been_answered_asks_for_nothing(void ** /*state*/) {
    const Slurm slurm;
    const auto libraries = slurm.libraries();
    SlurmWatch watch(libraries, 1ms);
    const OwnedJob job{.id = 7, .uid = kAlice};
    int saved = 0;
    const auto turn = [&] {
        watch.handle(
            [&] {
                return SlurmWatch::Here{
                    .node = "n1", .jobs = {job.id}, .coordinated = {job.id}, .owners = {{job.id, job.uid}}};
            },
            [&](std::uint32_t asked) {
                assert_int_equal(asked, job.id);
                ++saved;
            });
        std::vector<pollfd> fds;
        watch.watch(fds);
        poll(fds.data(), fds.size(), 20);
        return slurm.told();
    };
    const auto until_told = [&](std::string_view what) {
        const auto is_told = [&] {
            return std::ranges::any_of(turn(), [&](const auto &line) { return line.starts_with(what); });
        };
        assert_true(wait_until(is_told, Deadline::after(60s), "the next to be told").has_value());
    };
    until_told("look");
    watch.tell(job, kAnswerComment, {"saved as something"});
    slurm.speak();
    until_told("answer");
    assert_int_equal(saved, 0);
    const auto is_saved = [&] {
        turn();
        return saved != 0;
    };
    assert_true(wait_until(is_saved, Deadline::after(60s), "a comment that asks once more").has_value());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_share_is_taken_as_long_as_it_lives),
        cmocka_unit_test(who_wants_too_much_reads_the_word),
        cmocka_unit_test(a_process_counts_until_it_has_ended),
        cmocka_unit_test(users_take_turns_in_telling_slurmctld),
        cmocka_unit_test(a_comment_that_has_been_answered_asks_for_nothing),
    };
    return cmocka_run_group_tests_name("spank_shares", tests, set_small_limits, nullptr);
}
