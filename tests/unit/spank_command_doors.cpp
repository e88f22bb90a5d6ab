// SPDX-License-Identifier: GPL-2.0-or-later
// Which runner a stand-in finds, by its own means and as it is installed.
#include "cmocka.hpp"
#include "commands/runner.hpp"
#include "commands/stand_in.hpp"
#include "node/door.hpp"
#include "stand_in.hpp"

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace test;

constexpr int kNotPossible = 99;

const commands::Command kExit5{
    .path = kShell, .arguments = {"sh", "-c", "exit 5"}, .environment = {"PATH=/usr/bin:/bin"}};

// Of which another would take the command along when its rank ends.
void a_rank_asks_at_its_own_door(void **) {
    const Scratch scratch;
    Runner others(only({kShell}));
    others.open(scratch.listen(3));
    Runner own(only({kShell}));
    StandIn one;
    one.stand(scratch.door(4), kExit5, [] {}, {.pause_ms = 1, .at_own = 1000000});
    own.open(scratch.listen(4));
    expect_exit(own, one, 5);
    others.work();
    assert_true(others.at_rest());
}

void where_nobody_is_at_its_own_it_asks_another(void **) {
    const Scratch scratch;
    Runner others(only({kShell}));
    others.open(scratch.listen(3));
    // Of a rank that has ended.
    static_cast<void>(scratch.listen(4));
    StandIn gone;
    gone.stand(scratch.door(4), kExit5, [] {}, {.pause_ms = 1, .at_own = 3});
    expect_exit(others, gone, 5);
    StandIn never;
    never.stand(scratch.door(5), kExit5, [] {}, {.pause_ms = 1, .at_own = 3});
    expect_exit(others, never, 5);
    // At once, where its rank is not known.
    StandIn unknown;
    unknown.stand({.directory = scratch.path, .rank = std::nullopt}, kExit5, [] {}, {.attempts = 1});
    expect_exit(others, unknown, 5);
}

// From now on this process is in a mount namespace in which the program is mounted over this file, and the
// scratch directory is that of the doors.
bool looks_like_a_node(const Scratch &scratch, const std::filesystem::path &command) {
    return unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("none", "/run", "tmpfs", 0, nullptr) == 0 && mkdir("/run/singularity", 0755) == 0 &&
           mount(scratch.path.c_str(), "/run/singularity", nullptr, MS_BIND, nullptr) == 0 &&
           mount(SINGULARITY_COMMAND, command.c_str(), nullptr, MS_BIND, nullptr) == 0;
}

// As in a virtual node: the program is mounted over a command, and finds its door where it always is.
void the_installed_program_stands_for_what_it_hides(void **) {
    const Scratch scratch;
    const auto srun = scratch.path / "srun";
    std::filesystem::copy_file(kShell, srun);
    for (const char *name : {"work", "other"})
        std::filesystem::create_directory(scratch.path / name);
    const std::ofstream file(scratch.path / "other" / "of the node");
    Runner runner(only({srun}));
    runner.open(scratch.listen());
    const auto in_a_node = [&](StandIn &one, const std::filesystem::path &over) {
        one.fork_to([&] {
            const auto other = scratch.path / "other";
            if (!looks_like_a_node(scratch, srun) ||
                (!over.empty() && mount(other.c_str(), over.c_str(), nullptr, MS_BIND, nullptr) != 0) ||
                chdir((scratch.path / "work").c_str()) != 0)
                return kNotPossible;
            execl(srun.c_str(), "anything", "-c", "pwd -P; ls; echo $WORD $0; exit 5", nullptr);
            return kNotPossible;
        });
    };
    setenv("WORD", "said", 1);
    StandIn same;
    in_a_node(same, {});
    if (const int status = end_of(runner, same); WIFEXITED(status) && WEXITSTATUS(status) == kNotPossible)
        skip("mounts cannot be made here");
    expect_exit(runner, same, 5);
    expect_equal(content(same.out),
                 std::filesystem::canonical(scratch.path / "work").native() + "\nsaid anything\n");
    // A directory that has this name only in the node.
    StandIn hidden;
    in_a_node(hidden, scratch.path / "work");
    expect_exit(runner, hidden, 5);
    expect_contains(content(hidden.out), "of the node\nsaid anything\n");
    unsetenv("WORD");
}

// Its process may have cleared or changed its environment: what counts is how the rank was started.
void the_installed_program_finds_its_rank(void **) {
    const Scratch scratch;
    const auto srun = scratch.path / "srun";
    std::filesystem::copy_file(kShell, srun);
    const auto others = scratch.listen(9); // where nobody serves
    Runner own(only({srun}));
    own.open(scratch.listen(5));
    StandIn one;
    one.fork_to([&] {
        if (!looks_like_a_node(scratch, srun))
            return kNotPossible;
        const auto script = "env -i SLURM_PROCID=9 " + srun.native() + " -c 'exit 6'; exit $?";
        std::array<char, 16> rank{"SLURM_PROCID=5"};
        std::array<char *, 2> environment{rank.data(), nullptr};
        execle(kShell, "sh", "-c", script.c_str(), nullptr, environment.data());
        return kNotPossible;
    });
    if (const int status = end_of(own, one); WIFEXITED(status) && WEXITSTATUS(status) == kNotPossible)
        skip("mounts cannot be made here");
    expect_exit(own, one, 6);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_asks_at_its_own_door),
        cmocka_unit_test(where_nobody_is_at_its_own_it_asks_another),
        cmocka_unit_test(the_installed_program_stands_for_what_it_hides),
        cmocka_unit_test(the_installed_program_finds_its_rank),
    };
    return cmocka_run_group_tests_name("command doors", tests, nullptr, nullptr);
}
