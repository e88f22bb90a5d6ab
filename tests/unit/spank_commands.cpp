// SPDX-License-Identifier: GPL-2.0-or-later
// Slurm's commands outside of a virtual node, run for stand-ins.
#include "cmocka.hpp"
#include "commands/runner.hpp"
#include "commands/sent_input.hpp"
#include "commands/srun_input.hpp"
#include "commands/stand_in.hpp"
#include "common/deadline.hpp"
#include "common/proc.hpp"
#include "common/unique_fd.hpp"
#include "common/unix_socket.hpp"
#include "node/door.hpp"
#include "node/seqpacket.hpp"
#include "stand_in.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace test;

// Writes its number and goes on.
pid_t number_of(Runner &runner, const StandIn &one) {
    until(runner, [&] { return content(one.out).ends_with('\n'); }, "a command's number");
    const auto text = content(one.out);
    pid_t out = 0;
    std::from_chars(text.data(), text.data() + text.size(), out);
    assert_true(out > 0);
    return out;
}

char state_of(pid_t pid) {
    const auto stat = proc::read("/proc/" + std::to_string(pid) + "/stat");
    return stat ? proc::stat_columns(*stat).at(0).at(0) : '-';
}

void streams_pass_as_they_are(void **) {
    const Scratch scratch;
    Runner runner(only({"/usr/bin/tee"}));
    runner.open(scratch.listen());
    StandIn one;
    std::string bytes;
    for (std::size_t i = 0; i < std::size_t{3} << 20; ++i)
        bytes += static_cast<char>((i * 31) ^ (i >> 8));
    assert_int_equal(write(one.in.get(), bytes.data(), bytes.size()), bytes.size());
    assert_int_equal(lseek(one.in.get(), 0, SEEK_SET), 0);
    one.stand(scratch.door(),
              {.path = "/usr/bin/tee", .arguments = {"anything", "/dev/stderr"}, .environment = {}});
    expect_exit(runner, one, 0);
    assert_true(content(one.out) == bytes);
    assert_true(content(one.err) == bytes);
    rests(runner);
}

void ends_as_the_command_does(void **) {
    const Scratch scratch;
    Runner runner(only({kShell}));
    runner.open(scratch.listen());
    for (const int status : {0, 1, 42, 255}) {
        StandIn one;
        one.run(scratch.door(), "exit " + std::to_string(status));
        expect_exit(runner, one, status);
    }
    for (const int number : {SIGTERM, SIGKILL, SIGSEGV, SIGRTMAX}) {
        StandIn one;
        one.run(scratch.door(), "kill -" + std::to_string(number) + " $$");
        const int status = end_of(runner, one);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), number);
        assert_false(WCOREDUMP(status));
    }
    rests(runner);
}

void signals_reach_the_command(void **) {
    const Scratch scratch;
    Runner runner(only({kShell}));
    runner.open(scratch.listen());
    StandIn handled;
    handled.run(scratch.door(), "trap 'exit 3' USR1; echo $$; while :; do sleep 0.01; done");
    number_of(runner, handled);
    kill(handled.pid, SIGUSR1);
    expect_exit(runner, handled, 3);
    StandIn unhandled;
    unhandled.run(scratch.door(), "echo $$; exec sleep 1000");
    number_of(runner, unhandled);
    kill(unhandled.pid, SIGTERM);
    assert_int_equal(WTERMSIG(end_of(runner, unhandled)), SIGTERM);
    rests(runner);
}

// It can be told only later, and is not forgotten.
void signals_before_the_beginning_come_after_it(void **) {
    const Scratch scratch;
    Runner runner(only({kShell}));
    StandIn one;
    one.run(scratch.door(), "exec sleep 1000");
    const auto blocks = [&] {
        const auto status = proc::read("/proc/" + std::to_string(one.pid) + "/status");
        const auto text = status ? proc::status_line(*status, "SigBlk") : std::string_view();
        std::uint64_t bits = 0;
        std::from_chars(text.data(), text.data() + text.size(), bits, 16);
        return (bits & (1U << (SIGUSR2 - 1))) != 0;
    };
    until(runner, blocks, "a stand-in that takes signals");
    kill(one.pid, SIGUSR2);
    runner.open(scratch.listen());
    assert_int_equal(WTERMSIG(end_of(runner, one)), SIGUSR2);
}

void stops_and_goes_on_with_the_command(void **) {
    const Scratch scratch;
    Runner runner(only({kShell}));
    runner.open(scratch.listen());
    StandIn one;
    one.run(scratch.door(), "echo $$; read line; exit 7");
    // Input that does not end.
    std::array<int, 2> ends{};
    StandIn waiting;
    assert_int_equal(pipe2(ends.data(), O_CLOEXEC), 0);
    waiting.in = UniqueFd(ends[0]);
    UniqueFd writing(ends[1]);
    waiting.run(scratch.door(), "echo $$; read line; exit 8");
    const pid_t command = number_of(runner, waiting);
    for (const int number : {SIGTSTP, SIGTTIN, SIGTTOU}) {
        kill(waiting.pid, number);
        until(
            runner, [&] { return state_of(waiting.pid) == 'T' && state_of(command) == 'T'; },
            "a stand-in and a command that are stopped");
        kill(waiting.pid, SIGCONT);
        until(
            runner, [&] { return state_of(waiting.pid) != 'T' && state_of(command) != 'T'; },
            "a stand-in and a command that go on");
    }
    assert_int_equal(write(writing.get(), "\n", 1), 1);
    expect_exit(runner, waiting, 8);
    expect_exit(runner, one, 7);
}

void the_command_has_what_its_stand_in_has(void **) {
    const Scratch scratch;
    Runner runner(only({kShell}));
    runner.open(scratch.listen());
    sigset_t blocked;
    sigset_t before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, &before); // as the runner's process does with many
    const auto here = std::filesystem::canonical(scratch.path);
    StandIn one;
    one.stand(
        scratch.door(),
        {.path = kShell,
         .arguments =
             {"sh", "-c",
              // Nothing that forks: dash blocks its signals for that.
              "ulimit -Sn; ulimit -Hn; ulimit -Sf; umask; pwd -P; while IFS= read -r line; do case $line in "
              "SigBlk*|SigIgn*) echo \"$line\" ;; esac; done </proc/$$/status; "
              "[ \"$(cut -d' ' -f6 /proc/$$/stat)\" = $$ ] && echo a session; ls /proc/$$/fd"},
         .environment = {"PATH=/usr/bin:/bin"}},
        [&] {
            for (int number = 1; number < NSIG; ++number)
                static_cast<void>(signal(number, SIG_DFL));
            static_cast<void>(signal(SIGHUP, SIG_IGN));
            const rlimit files{.rlim_cur = 100, .rlim_max = 200};
            setrlimit(RLIMIT_NOFILE, &files);
            rlimit size{};
            getrlimit(RLIMIT_FSIZE, &size);
            size.rlim_cur = 1 << 20;
            setrlimit(RLIMIT_FSIZE, &size);
            umask(027);
            if (chdir(here.c_str()) != 0)
                _exit(99);
        });
    expect_exit(runner, one, 0);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    expect_equal(content(one.out), "100\n200\n2048\n0027\n" + here.native() +
                                       "\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000001\na session\n"
                                       "0\n1\n2\n");
}

void closed_streams_are_empty(void **) {
    const Scratch scratch;
    Runner runner(only({kShell}));
    runner.open(scratch.listen());
    StandIn one;
    one.stand(
        scratch.door(),
        {.path = kShell,
         .arguments = {"sh", "-c",
                       "in=$(readlink /proc/$$/fd/0); out=$(readlink /proc/$$/fd/1); echo $in $out >&2"},
         .environment = {"PATH=/usr/bin:/bin"}},
        [] {
            close(0);
            close(1);
        });
    expect_exit(runner, one, 0);
    expect_equal(content(one.err), "/dev/null /dev/null\n");
}

void large_environments_pass_and_are_adapted(void **) {
    const Scratch scratch;
    auto setting = only({kShell});
    setting.adapt = [](std::vector<std::string> &environment) { environment.emplace_back("OUTSIDE=yes"); };
    Runner runner(std::move(setting));
    runner.open(scratch.listen());
    commands::Command command{
        .path = kShell,
        .arguments = {"sh", "-c", "[ ${#BIG0} = 65536 ] && [ ${#BIG15} = 65536 ] && [ $OUTSIDE = yes ]"},
        .environment = {}};
    for (int i = 0; i < 16; ++i)
        command.environment.push_back("BIG" + std::to_string(i) + "=" + std::string(65536, 'x'));
    StandIn one;
    one.stand(scratch.door(), command);
    expect_exit(runner, one, 0);
}

void what_cannot_be_run_is_said(void **) {
    const Scratch scratch;
    const auto missing = scratch.path / "squeue";
    const auto plain = scratch.path / "sinfo";
    std::ofstream(plain) << "no program\n";
    Runner runner(only({missing, plain}));
    runner.open(scratch.listen());
    const struct {
        std::string path;
        int status;
        std::string words;
    } cases[] = {
        {kShell, 1,
         "sh: cannot run /bin/sh: it is none of Slurm's commands here: " + missing.native() + ", " +
             plain.native() + "\n"},
        {missing, 127, "squeue: cannot execute " + missing.native() + ": No such file or directory\n"},
        {plain, 126, "sinfo: cannot execute " + plain.native() + ": Permission denied\n"},
    };
    for (const auto &[path, status, words] : cases) {
        StandIn one;
        one.run(scratch.door(), "exit 0", path);
        expect_exit(runner, one, status);
        expect_equal(content(one.err), words);
    }
    rests(runner);
}

// It comes before the stand-in looks, so that the test need not wait for it to wait.
void raise_after_block(int number) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    static_cast<void>(raise(number));
}

void nobody_there_is_said_after_a_time(void **) {
    const Scratch scratch;
    Runner runner(only({}));
    StandIn one;
    one.stand(scratch.door(), {.path = "/usr/bin/srun", .arguments = {"srun"}, .environment = {}}, [] {},
              {.attempts = 3, .pause_ms = 1});
    expect_exit(runner, one, 1);
    expect_contains(content(one.err),
                    "srun: cannot run /usr/bin/srun: nobody outside of the virtual node has taken it at " +
                        scratch.path.native());
}

UniqueFd connected(const Scratch &scratch) {
    auto made = connect_unix(scratch.socket(), Deadline::after(kPatience));
    assert_true(made.has_value());
    return std::move(*made);
}

std::string answer_to(Runner &runner, const UniqueFd &socket) {
    node::Packet packet;
    until(
        runner, [&] { return node::receive_packet(socket.get(), packet) == node::Received::packet; },
        "an answer");
    return packet.bytes;
}

// As ^C does while the job is being saved or restored.
void who_waits_for_a_door_can_be_ended(void **) {
    const Scratch scratch;
    for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
        StandIn one;
        StandIn other;
        const commands::Command command{.path = kShell, .arguments = {"sh"}, .environment = {}};
        const auto wait = [&](StandIn &which, const std::function<void()> &first) {
            which.stand(scratch.door(), command, first, {.attempts = 1000, .pause_ms = 1});
        };
        wait(one, [number] { raise_after_block(number); });
        // Which nohup(1) has made so.
        wait(other, [number] {
            static_cast<void>(std::signal(number, SIG_IGN));
            raise_after_block(number);
        });
        Runner none(only({kShell}));
        const int status = end_of(none, one);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), number);
        expect_exit(none, other, 1);
        expect_contains(content(other.err), "nobody outside of the virtual node has taken it");
    }
}

void a_pause_sends_away_who_has_not_begun(void **) {
    const Scratch scratch;
    Runner runner(only({kShell}));
    runner.open(scratch.listen());
    UniqueFd accepted = connected(scratch);
    until(runner, [&] { return runner.running().size() == 1; }, "a connection that is accepted");
    UniqueFd waiting = connected(scratch); // in the backlog
    StandIn one;                           // likewise, with its request
    one.run(scratch.door(), "exit 5");
    const auto has_connected = [&] {
        std::ifstream sockets("/proc/net/unix");
        std::size_t count = 0;
        // Those of the listener's side that are not accepted have no name there; those that are have it.
        for (std::string line; std::getline(sockets, line);)
            count += line.ends_with(scratch.socket().native()) ? 1 : 0;
        return count >= 4;
    };
    assert_true(
        wait_until(has_connected, Deadline::after(kPatience), "a stand-in that has connected").has_value());
    runner.pause();
    const auto late = connect_unix(scratch.socket(), Deadline::after(kPatience));
    assert_false(late.has_value());
    assert_int_equal(late.error().code, ECONNREFUSED);
    for (UniqueFd *socket : {&accepted, &waiting}) {
        assert_true(node::decode<commands::Again>(answer_to(runner, *socket)).has_value());
        assert_false(runner.at_rest()); // it has not hung up
        socket->reset();
    }
    rests(runner);
    assert_false(one.ended());
    runner.open(scratch.listen());
    expect_exit(runner, one, 5);
    rests(runner);
}

void a_pause_lets_commands_end(void **) {
    const Scratch scratch;
    Runner runner(only({kShell}));
    runner.open(scratch.listen());
    std::array<int, 2> ends{};
    assert_int_equal(pipe2(ends.data(), O_CLOEXEC), 0);
    StandIn one;
    one.in = UniqueFd(ends[0]);
    UniqueFd writing(ends[1]);
    one.run(scratch.door(), "echo $$; read line; exit 6");
    const pid_t command = number_of(runner, one);
    assert_true(runner.has_child(command));
    assert_false(runner.has_child(one.pid));
    runner.pause();
    StandIn later;
    later.run(scratch.door(), "exit 9");
    assert_false(runner.at_rest());
    assert_int_equal(runner.running().size(), 1);
    expect_equal(runner.running()[0].path, kShell);
    assert_int_equal(runner.running()[0].stand_in, one.pid);
    assert_int_equal(write(writing.get(), "\n", 1), 1);
    expect_exit(runner, one, 6);
    rests(runner);
    assert_false(later.ended());
    runner.open(scratch.listen());
    expect_exit(runner, later, 9);
}

void ends_of_steps_are_withheld(void **) {
    const Scratch scratch;
    const auto srun = scratch.path / "srun";
    const auto squeue = scratch.path / "squeue";
    for (const auto &path : {srun, squeue})
        std::filesystem::create_symlink(kShell, path);
    Runner runner(only({srun, squeue}));
    runner.open(scratch.listen());
    StandIn step;
    StandIn killed;
    step.run(scratch.door(), "echo $$; sleep 0.1; exit 4", srun);
    killed.run(scratch.door(), "echo $$; sleep 0.1; exit 4", srun);
    const pid_t command = number_of(runner, step);
    const pid_t of_killed = number_of(runner, killed);
    runner.withhold();
    until(
        runner, [&] { return !runner.has_child(command) && !runner.has_child(of_killed); },
        "the ends of the commands");
    StandIn other; // that one is told, of two that have ended, shows that the first is not told
    other.run(scratch.door(), "exit 2", squeue);
    expect_exit(runner, other, 2);
    assert_false(step.ended());
    assert_false(runner.at_rest());
    until(runner, [&] { return runner.running().size() == 2; }, "the other's hang-up");
    expect_equal(runner.running()[0].path, srun.native());
    kill(step.pid, SIGUSR1); // too late for its command
    StandIn late;            // which is not begun before all is known
    late.run(scratch.door(), "exit 6", srun);
    kill(killed.pid, SIGKILL);
    until(runner, [&] { return killed.ended(); }, "a stand-in's end");
    assert_false(late.ended());
    runner.deliver();
    expect_exit(runner, step, 4);
    expect_exit(runner, late, 6);
    rests(runner);
}

const commands::SavedStep kSaved{.checkpoint = "the checkpoint", .read = {}};

// The runner of a script, in one run of its job.
struct OfScript {
    std::filesystem::path srun;
    std::filesystem::path end;
    std::uint32_t number = 0; // what it is told last
    std::string checkpoint;
    std::vector<std::uint64_t> had;
    Runner runner;

    explicit OfScript(const Scratch &scratch)
        : srun(scratch.path / "srun"), end(scratch.path / "end"), runner(setting()) {
        std::error_code exists;
        std::filesystem::create_symlink(kShell, srun, exists);
        runner.open(scratch.listen());
    }
    commands::Setting setting() {
        auto out = only({srun});
        out.number = [this](std::vector<std::string> & /*environment*/, const commands::Run &run) {
            number = run.number;
            checkpoint = run.checkpoint;
            had = run.had;
        };
        return out;
    }
    void run(StandIn &one, const Scratch &scratch, const std::string &script) const {
        one.in = UniqueFd(open("/dev/null", O_RDONLY));
        one.run(scratch.door(), script, srun);
    }
    // Before it ends, so that the end is withheld.
    [[nodiscard]] std::string wait() const {
        return "until [ -e " + end.native() + " ]; do sleep 0.01; done; ";
    }
    void withhold() {
        until(runner, [&] { return number != 0; }, "a command");
        runner.withhold();
        std::ofstream(end) << "now\n";
        await_untold();
        std::filesystem::remove(end);
    }
    // It has begun a step, which is saved with so much read of its input.
    void save(const std::vector<std::uint64_t> &read) {
        withhold();
        runner.pause();
        runner.send_away({{number, {.checkpoint = "the checkpoint", .read = read}}});
    }
    void await_untold() {
        until(
            runner, [&] { return runner.running().size() == 1 && runner.running()[0].over; },
            "an end to be withheld");
    }
};

// What the command writes comes once, before and after; and nobody sees its streams closed in between.
void a_step_that_was_saved_goes_on(void **) {
    const Scratch scratch;
    std::array<int, 2> ends{};
    assert_int_equal(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    UniqueFd reading(ends[0]);
    StandIn one;
    one.out = UniqueFd(ends[1]);
    std::uint32_t number = 0;
    {
        OfScript first(scratch);
        // As the SPANK plugin in srun, when it has begun a step.
        first.run(one, scratch, "printf x >&3; echo first; sleep 0.1; exit 4");
        one.out.reset();
        until(first.runner, [&] { return first.number != 0; }, "a command");
        first.runner.withhold();
        first.await_untold();
        number = first.number;
        assert_true(number >= node::kLeastStandIn && number < node::kStandInsEnd);
        assert_true(first.runner.untold_steps() == std::vector{number});
        assert_true(first.runner.running()[0].may_go_on);
        first.runner.pause();
        first.runner.send_away({}); // nothing is known to be saved: it stays
        assert_false(first.runner.at_rest());
        first.runner.send_away({{number, kSaved}});
        rests(first.runner);
        assert_false(one.ended());
    }
    std::array<char, 64> text{};
    assert_int_equal(read(reading.get(), text.data(), text.size()), 6);
    assert_int_equal(read(reading.get(), text.data(), text.size()), -1); // and no end of the file
    OfScript second(scratch);
    expect_exit(second.runner, one, 4);
    assert_int_equal(second.number, number);
    expect_equal(second.checkpoint, "the checkpoint");
    assert_int_equal(read(reading.get(), text.data(), text.size()), 6);
    assert_int_equal(read(reading.get(), text.data(), text.size()), 0);
}

void a_step_that_has_not_begun_begins_later(void **) {
    const Scratch scratch;
    StandIn one;
    std::uint32_t number = 0;
    {
        OfScript first(scratch);
        first.run(one, scratch, "exit 1"); // there is no room, say
        first.await_untold();
        assert_true(first.runner.is_in_doubt());
        first.runner.withhold();
        assert_false(first.runner.is_in_doubt());
        assert_true(first.runner.untold_steps().empty());
        number = first.number;
        first.runner.pause();
        first.runner.send_away({});
        rests(first.runner);
    }
    OfScript second(scratch);
    until(second.runner, [&] { return second.runner.is_in_doubt(); }, "the second try");
    assert_int_equal(second.number, number);
    expect_equal(second.checkpoint, "");
    second.runner.deliver();
    expect_exit(second.runner, one, 1);
}

// Its step is saved, and its node is not.
void who_was_sent_away_hears_of_the_end_that_was_withheld(void **) {
    const Scratch scratch;
    OfScript script(scratch);
    StandIn one;
    script.run(one, scratch, "printf x >&3; sleep 0.1; exit 7");
    until(script.runner, [&] { return script.number != 0; }, "a command");
    script.runner.withhold();
    script.await_untold();
    script.runner.pause();
    script.runner.send_away({{script.number, kSaved}});
    rests(script.runner);
    script.number = 0;
    script.runner.open(scratch.listen());
    script.runner.deliver();
    expect_exit(script.runner, one, 7);
    assert_int_equal(script.number, 0); // nothing was run
}

// Script and step are saved, and both run on.
void a_step_that_was_saved_is_begun_again_by_the_same_runner(void **) {
    const Scratch scratch;
    OfScript script(scratch);
    StandIn one;
    const auto again = scratch.path / "again";
    script.run(one, scratch,
               "printf x >&3; [ -e " + again.native() + " ] && exit 4; touch " + again.native() + "; exit 0");
    until(script.runner, [&] { return script.number != 0; }, "a command");
    script.runner.hold_end(script.number);
    script.await_untold();
    script.runner.deliver(); // of no concern to it
    assert_false(script.runner.withholds());
    assert_false(script.runner.at_rest());
    script.runner.pause();
    assert_true(script.runner.send_back(script.number, kSaved));
    rests(script.runner);
    assert_true(script.runner.awaited() == std::vector<std::string>{kSaved.checkpoint});
    script.checkpoint.clear();
    script.runner.open(scratch.listen());
    expect_exit(script.runner, one, 4);
    expect_equal(script.checkpoint, kSaved.checkpoint);
    assert_true(script.runner.awaited().empty());
}

void an_end_that_was_held_is_told_when_it_is_known_what_it_means(void **) {
    const Scratch scratch;
    OfScript script(scratch);
    StandIn one;
    const auto held = scratch.path / "held";
    script.run(one, scratch, "printf x >&3; until [ -e " + held.native() + " ]; do sleep 0.01; done; exit 7");
    until(script.runner, [&] { return script.number != 0; }, "a command");
    script.runner.hold_end(script.number);
    std::ofstream(held).close(); // not before: it would be told
    script.await_untold();
    assert_false(one.ended());
    script.runner.tell_end(script.number);
    expect_exit(script.runner, one, 7);
}

void signals_wait_for_a_step_that_goes_on(void **) {
    const Scratch scratch;
    StandIn one;
    {
        OfScript first(scratch);
        first.run(one, scratch, "printf x >&3; sleep 0.1; kill -TERM $$; sleep 1000");
        until(first.runner, [&] { return first.number != 0; }, "a command");
        first.runner.withhold();
        first.await_untold();
        first.runner.pause();
        first.runner.send_away({{first.number, kSaved}});
        rests(first.runner);
    }
    kill(one.pid, SIGHUP); // nobody is there, and it waits all the same
    OfScript second(scratch);
    until(second.runner, [&] { return !second.runner.signalled_steps().empty(); }, "the signal");
    assert_true(second.runner.signalled_steps() == std::vector{second.number});
    second.runner.step_runs(second.number);
    assert_true(second.runner.signalled_steps().empty());
    const auto ends = [&] {
        second.runner.deliver(); // it may have come before there was a step: that is an end in doubt
        return one.ended();
    };
    until(second.runner, ends, "the end by a signal");
    assert_int_equal(WTERMSIG(one.status), SIGHUP);
}

// None is lost between the end of srun and the save: those that the runner has heard of, has yet to read, or
// that come when nobody listens any more.
void signals_wait_from_the_end_of_a_step_until_it_runs_again(void **) {
    const Scratch scratch;
    const auto ran = (scratch.path / "ran").native();
    const auto script = "end() { until [ -e " + (scratch.path / "end").native() +
                        " ]; do sleep 0.01; done; exit 1; }; printf x >> " + ran + "; case $(cat " + ran +
                        ") in x) printf x >&3; end;; xx) end;; esac; trap 'printf 1' USR1; "
                        "trap 'printf 2' USR2; trap 'exit 5' TERM; while :; do sleep 0.01; done";
    StandIn one;
    {
        OfScript first(scratch);
        first.run(one, scratch, script);
        first.withhold();
        kill(one.pid, SIGUSR1);
        for (int turn = 0; turn < 20; ++turn) { // most probably it is here then, which changes nothing
            first.runner.work();
            std::this_thread::sleep_for(5ms);
        }
        kill(one.pid, SIGUSR2);
        std::this_thread::sleep_for(20ms);
        first.runner.pause();
        first.runner.send_away({{first.number, kSaved}});
        kill(one.pid, SIGTERM);
        rests(first.runner);
    }
    {
        // It is saved once more, before its step runs.
        OfScript second(scratch);
        until(second.runner, [&] { return second.runner.signalled_steps().size() == 1; }, "signals");
        second.withhold();
        second.runner.pause();
        second.runner.send_away({});
        rests(second.runner);
    }
    OfScript third(scratch);
    until(third.runner, [&] { return !third.runner.signalled_steps().empty(); }, "the signals");
    std::this_thread::sleep_for(300ms); // until its traps are set
    third.runner.step_runs(third.number);
    const auto ends = [&] {
        third.runner.deliver(); // it has not said that it has begun a step: an end in doubt
        return one.ended();
    };
    until(third.runner, ends, "the end by a trap");
    assert_int_equal(WEXITSTATUS(one.status), 5);
    expect_equal(third.checkpoint, "the checkpoint");
    const auto shown = content(one.out);
    assert_true(shown == "12" || shown == "21");
}

// A command writes there what it wants: the programs that srun starts have the descriptor as well.
void what_a_command_says_of_its_step_is_only_that(void **) {
    const Scratch scratch;
    for (const auto *const said : {"xx", "\\377\\377\\377\\377\\377\\377\\377\\377"}) {
        OfScript script(scratch);
        StandIn one;
        script.run(one, scratch, std::string("printf '") + said + "' >&3; " + script.wait() + "exit 3");
        script.withhold();
        assert_int_equal(script.runner.untold_steps().size(), 1);
        script.runner.deliver();
        expect_exit(script.runner, one, 3);
        std::filesystem::remove(scratch.socket());
    }
}

// Each byte once: the command reads what its ranks have not had, whatever srun had taken.
void input_from_a_file_goes_on_where_the_step_is(void **) {
    const Scratch scratch;
    StandIn one;
    assert_int_equal(write(one.in.get(), "0123456789", 10), 10);
    lseek(one.in.get(), 1, SEEK_SET); // the script has read one
    {
        OfScript first(scratch);
        one.run(scratch.door(), "printf x >&3; read all; " + first.wait() + "exit 1", first.srun);
        first.save({5, 3});
        rests(first.runner);
    }
    {
        OfScript second(scratch);
        until(second.runner, [&] { return second.number != 0; }, "the second run");
        assert_true(second.had == (std::vector<std::uint64_t>{2, 0}));
        second.save({4, 2});
        rests(second.runner);
    }
    OfScript third(scratch);
    third.withhold();
    assert_true(third.had == (std::vector<std::uint64_t>{2, 0}));
    third.runner.deliver();
    expect_exit(third.runner, one, 1);
    assert_int_equal(lseek(one.in.get(), 0, SEEK_CUR), 10); // 1 + 3 + 2, and all that is left
}

void input_from_a_pipe_goes_on_where_the_step_is(void **) {
    const Scratch scratch;
    std::array<int, 2> ends{};
    assert_int_equal(pipe2(ends.data(), O_CLOEXEC), 0);
    UniqueFd writing(ends[1]);
    assert_int_equal(write(writing.get(), "0123456789", 10), 10);
    const auto ran = (scratch.path / "ran").native();
    StandIn one;
    one.in = UniqueFd(ends[0]);
    {
        OfScript first(scratch);
        one.run(scratch.door(),
                "printf x >> " + ran + "; case $(cat " + ran +
                    ") in x|xx) printf x >&3; dd bs=1 count=8 2>/dev/null; " + first.wait() +
                    "exit 1;; esac; printf x >&3; cat",
                first.srun);
        one.in.reset();
        first.save({5, 3});
        rests(first.runner);
    }
    assert_int_equal(write(writing.get(), "abcde", 5), 5);
    {
        OfScript second(scratch);
        until(second.runner, [&] { return second.number != 0; }, "the second run");
        assert_true(second.had == (std::vector<std::uint64_t>{2, 0}));
        second.save({4, 2});
        rests(second.runner);
    }
    writing.reset();
    OfScript third(scratch);
    expect_exit(third.runner, one, 0);
    expect_equal(content(one.out), "01234567"
                                   "3456789a"
                                   "56789abcde");
}

// It is not to begin where something is missing.
void a_step_whose_input_is_not_known_or_not_there_stays(void **) {
    const Scratch scratch;
    OfScript script(scratch);
    StandIn one;
    one.run(scratch.door(), "printf x >&3; " + script.wait() + "exit 3", script.srun); // a file
    script.save({});
    for (int turn = 0; turn < 3; ++turn)
        script.runner.work();
    assert_int_equal(script.runner.untold_steps().size(), 1);
    script.runner.deliver();
    expect_exit(script.runner, one, 3);
}

void input_stays_where_no_step_begins(void **) {
    const Scratch scratch;
    std::array<int, 2> ends{};
    assert_int_equal(pipe2(ends.data(), O_CLOEXEC), 0);
    const UniqueFd writing(ends[1]);
    const UniqueFd reading(ends[0]);
    assert_int_equal(write(writing.get(), "0123456789", 10), 10);
    OfScript script(scratch);
    StandIn one;
    one.in = UniqueFd(dup(reading.get()));
    one.run(scratch.door(), "sleep 0.2; exit 0", script.srun);
    expect_exit(script.runner, one, 0);
    std::array<char, 16> bytes{};
    assert_int_equal(read(reading.get(), bytes.data(), bytes.size()), 10);
}

// On whatever hosts it is run next.
void a_step_without_input_has_nothing_to_skip(void **) {
    const Scratch scratch;
    StandIn one;
    {
        OfScript first(scratch);
        first.run(one, scratch, "printf x >&3; " + first.wait() + "exit 0");
        first.save({0, commands::kReadsNone, 0});
        rests(first.runner);
    }
    OfScript second(scratch);
    second.withhold();
    assert_true(second.had.empty());
    expect_equal(second.checkpoint, "the checkpoint");
    second.runner.deliver();
    expect_exit(second.runner, one, 0);
}

// A rank has read little of much that has gone to the others: it cannot have the rest again, so the script is
// not saved as if it could.
void a_step_whose_input_is_not_kept_any_more_stays(void **) {
    const Scratch scratch;
    std::array<int, 2> ends{};
    assert_int_equal(pipe2(ends.data(), O_CLOEXEC), 0);
    UniqueFd reading(ends[0]);
    UniqueFd writing(ends[1]);
    constexpr std::size_t kMuch = 3 * commands::kInputKept;
    OfScript script(scratch);
    StandIn one;
    one.in = std::move(reading);
    one.run(scratch.door(),
            fmt::format("printf x >&3; head -c {} > /dev/null; {} exit 3", kMuch, script.wait()),
            script.srun);
    const std::jthread writer([&] {
        const std::vector<char> bytes(std::size_t{1} << 20U);
        for (std::size_t sent = 0; sent < kMuch; sent += bytes.size())
            if (write(writing.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
                return;
        writing.reset();
    });
    script.save({7, kMuch});
    assert_false(script.runner.at_rest());
    assert_false(one.ended());
    script.runner.deliver();
    expect_exit(script.runner, one, 3);
}

void where_input_comes_from_is_known(void **) {
    using commands::InputSource;
    const auto source = [](std::vector<std::string> arguments, std::vector<std::string> environment) {
        arguments.insert(arguments.begin(), "srun");
        return commands::input_source({.path = "/usr/bin/srun",
                                       .arguments = std::move(arguments),
                                       .environment = std::move(environment)});
    };
    const std::vector<std::vector<std::string>> named{
        {"-i", "f", "app"},    {"-if", "app"},         {"--input=f", "app"},
        {"--inp", "f", "app"}, {"-N1", "-lif", "app"}, {"-n", "2", "-i", "f"},
        {"--overlap", "-if"},  {"--mem", "1", "-if"},  {"a", ":", "--input=f", "b"}};
    for (const auto &words : named)
        assert_true(source(words, {}) == InputSource::named);
    const std::vector<std::vector<std::string>> standard{
        {"app", "-i", "f"},      {"-n", "2", "app", "-if"}, {"--overlap", "app", "-i"}, {"-i", "all", "app"},
        {"--input=3", "app"},    {"-K", "app", "-i", "f"},  {"--", "app", "--input=f"}, {"-Ki", "app"},
        {"--exact", "sed", "-i"}};
    for (const auto &words : standard)
        assert_true(source(words, {}) == InputSource::standard);
    for (const auto *const word : {"--input=none", "-inone", "-i/dev/null"})
        assert_true(source({word, "app"}, {}) == InputSource::nothing);
    assert_true(source({"app"}, {"SLURM_STDINMODE=f"}) == InputSource::named);
    assert_true(source({"app"}, {"SLURM_STDINMODE=none"}) == InputSource::nothing);
}

// More than is kept, which is more than can be under way.
void much_input_is_not_kept_for_ever(void **) {
    std::array<int, 2> ends{};
    assert_int_equal(pipe2(ends.data(), O_CLOEXEC), 0);
    const UniqueFd reading(ends[0]);
    const UniqueFd writing(ends[1]);
    constexpr std::size_t kKept = 1 << 20;
    commands::SentInput input(kKept);
    UniqueFd command(input.open());
    std::uint64_t first = 0;
    std::uint64_t sent = 0;
    std::vector<char> bytes(65536);
    for (; sent < 4 * kKept; sent += bytes.size()) {
        for (std::size_t at = 0; at < bytes.size(); ++at)
            bytes[at] = static_cast<char>((sent + at) % 251);
        assert_int_equal(write(writing.get(), bytes.data(), bytes.size()), bytes.size());
        for (std::size_t got = 0; got < bytes.size();) {
            input.work(reading.get(), [&](std::uint64_t from) {
                first = from;
                return true;
            });
            got += static_cast<std::size_t>(read(command.get(), bytes.data() + got, bytes.size() - got));
        }
    }
    assert_true(first >= kKept && first <= sent - kKept);
    input.begin_at(first + 7);
    command = UniqueFd(input.open());
    input.work(reading.get(), [](std::uint64_t) { return true; });
    assert_int_equal(read(command.get(), bytes.data(), 1), 1);
    assert_int_equal(static_cast<unsigned char>(bytes[0]), (first + 7) % 251);
}

void a_killed_stand_in_takes_its_command_along(void **) {
    const Scratch scratch;
    Runner runner(only({kShell}));
    runner.open(scratch.listen());
    StandIn one;
    one.run(scratch.door(), "trap '' HUP TERM; echo $$; exec sleep 1000");
    const pid_t command = number_of(runner, one);
    kill(one.pid, SIGKILL);
    rests(runner);
    assert_int_equal(state_of(command), '-');
}

void the_end_is_everybodys(void **) {
    const Scratch scratch;
    Runner runner(only({kShell}));
    runner.open(scratch.listen());
    StandIn one;
    one.run(scratch.door(), "echo $$; exec sleep 1000");
    const pid_t command = number_of(runner, one);
    runner.end();
    assert_true(runner.at_rest());
    assert_int_equal(state_of(command), '-');
    expect_exit(runner, one, 1);
    expect_contains(content(one.err),
                    "sh: cannot learn the end of /bin/sh: the connection out of the virtual node has ended");
}

void connections_have_a_limit(void **) {
    const Scratch scratch;
    auto setting = only({kShell});
    setting.connections = 2;
    Runner runner(std::move(setting));
    runner.open(scratch.listen());
    std::vector<UniqueFd> idle;
    idle.reserve(2);
    for (int i = 0; i < 2; ++i)
        idle.push_back(connected(scratch));
    StandIn refused;
    refused.run(scratch.door(), "exit 0");
    expect_exit(runner, refused, 1);
    expect_contains(content(refused.err),
                    "sh: cannot run one more command: 2 of Slurm's commands run already");
    // Whoever is refused and stays takes nobody's place for ever.
    for (std::size_t i = 0; i < commands::kAnsweredLimit; ++i) {
        idle.push_back(connected(scratch));
        runner.work();
    }
    until(
        runner, [&] { return runner.running().size() == 2 + commands::kAnsweredLimit; },
        "connections that are refused");
    idle.push_back(connected(scratch));
    runner.work();
    assert_int_equal(runner.running().size(), 2 + commands::kAnsweredLimit);
    idle.clear();
    StandIn served;
    served.run(scratch.door(), "exit 0");
    expect_exit(runner, served, 0);
    rests(runner);
}

void what_is_no_request_is_refused(void **) {
    const Scratch scratch;
    Runner runner(only({kShell}));
    runner.open(scratch.listen());
    commands::Run run{
        .path = kShell, .program = {}, .ignored = {-1, 0, 1 << 30}, .number = 0, .checkpoint = {}, .had = {}};
    run.program.arguments = {"sh", "-c", "exec sleep 1000"};
    const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    const UniqueFd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    const auto whole = std::vector{nothing.get(), nothing.get(), nothing.get(), root.get()};
    struct Said {
        std::string bytes;
        std::vector<int> descriptors;
    };
    auto unlimited = run;
    unlimited.program.limits = {{.resource = 99, .soft = 1, .hard = 1}};
    const struct {
        std::vector<Said> said;
        const char *words;
    } cases[] = {
        {{{"garbage of no type", {}}}, "came where one Run is due"},
        {{{node::encode(commands::Signal{.number = 1}), {}}}, "a packet of type 2 came where one Run is due"},
        {{{node::encode(run), {nothing.get()}}}, "1 descriptors and 3 arguments came; send 4"},
        {{{node::encode(run), {nothing.get(), nothing.get(), nothing.get(), nothing.get()}}},
         "Not a directory"},
        {{{node::encode(unlimited), whole}}, "Invalid argument"},
        {{{node::encode(run), whole}, {node::encode(run), {}}},
         "a packet of type 1 came where one Run is due"},
        {{{node::encode(run), whole}, {node::encode(commands::Signal{.number = 99}), {}}},
         "Invalid argument"},
    };
    for (const auto &[said, words] : cases) {
        UniqueFd socket = connected(scratch);
        for (const auto &[bytes, descriptors] : said)
            assert_int_equal(node::send_packet(socket.get(), bytes, descriptors), 0);
        auto answer = answer_to(runner, socket);
        if (node::decode<commands::Begun>(answer))
            answer = answer_to(runner, socket);
        const auto refused = node::decode<commands::Refused>(answer);
        assert_true(refused.has_value());
        expect_contains(refused->doing + " " + refused->on + ": " + refused->why, words);
        socket.reset();
        rests(runner);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(streams_pass_as_they_are),
        cmocka_unit_test(ends_as_the_command_does),
        cmocka_unit_test(signals_reach_the_command),
        cmocka_unit_test(signals_before_the_beginning_come_after_it),
        cmocka_unit_test(stops_and_goes_on_with_the_command),
        cmocka_unit_test(the_command_has_what_its_stand_in_has),
        cmocka_unit_test(closed_streams_are_empty),
        cmocka_unit_test(large_environments_pass_and_are_adapted),
        cmocka_unit_test(what_cannot_be_run_is_said),
        cmocka_unit_test(nobody_there_is_said_after_a_time),
        cmocka_unit_test(who_waits_for_a_door_can_be_ended),
        cmocka_unit_test(a_pause_sends_away_who_has_not_begun),
        cmocka_unit_test(a_pause_lets_commands_end),
        cmocka_unit_test(ends_of_steps_are_withheld),
        cmocka_unit_test(a_step_that_was_saved_goes_on),
        cmocka_unit_test(a_step_that_has_not_begun_begins_later),
        cmocka_unit_test(who_was_sent_away_hears_of_the_end_that_was_withheld),
        cmocka_unit_test(a_step_that_was_saved_is_begun_again_by_the_same_runner),
        cmocka_unit_test(an_end_that_was_held_is_told_when_it_is_known_what_it_means),
        cmocka_unit_test(signals_wait_for_a_step_that_goes_on),
        cmocka_unit_test(signals_wait_from_the_end_of_a_step_until_it_runs_again),
        cmocka_unit_test(what_a_command_says_of_its_step_is_only_that),
        cmocka_unit_test(input_from_a_file_goes_on_where_the_step_is),
        cmocka_unit_test(input_from_a_pipe_goes_on_where_the_step_is),
        cmocka_unit_test(a_step_whose_input_is_not_known_or_not_there_stays),
        cmocka_unit_test(input_stays_where_no_step_begins),
        cmocka_unit_test(a_step_without_input_has_nothing_to_skip),
        cmocka_unit_test(a_step_whose_input_is_not_kept_any_more_stays),
        cmocka_unit_test(where_input_comes_from_is_known),
        cmocka_unit_test(much_input_is_not_kept_for_ever),
        cmocka_unit_test(a_killed_stand_in_takes_its_command_along),
        cmocka_unit_test(the_end_is_everybodys),
        cmocka_unit_test(connections_have_a_limit),
        cmocka_unit_test(what_is_no_request_is_refused),
    };
    return cmocka_run_group_tests_name("commands", tests, nullptr, nullptr);
}
