// SPDX-License-Identifier: GPL-2.0-or-later
// Ranks that die, hang, abort or leave: every other rank's operations end, with an error that says why.
#include "cmocka.hpp"
#include "common/log.hpp"
#include "ranks.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <csignal>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity::test;
namespace collectives = singularity::collectives;
namespace protocol = singularity::protocol;
using protocol::CollectiveKind;
using protocol::CommunicatorPhase;

protocol::CollectiveOperation sum_of(std::vector<std::int32_t> &numbers) {
    return {.kind = std::to_underlying(CollectiveKind::all_reduce),
            .type = 2,
            .count = numbers.size(),
            .input = std::bit_cast<std::uint64_t>(numbers.data()),
            .output = std::bit_cast<std::uint64_t>(numbers.data())};
}

void expect_failed(collectives::Member &member, std::string_view why) {
    const auto state = member.wait(~std::uint64_t{0}, soon());
    assert_int_equal(std::to_underlying(state.phase), std::to_underlying(CommunicatorPhase::failed));
    assert_true(state.failure.remote);
    expect_contains(state.failure.text, why);
}

void who_aborts_fails_all(void **) {
    const Job job;
    for (const auto placement : kPlacements) {
        std::vector<std::int32_t> numbers(1000);
        Ranks ranks(job, 4, placement);
        ranks.issue(0, {sum_of(numbers)});
        ranks.member(2).abort("has aborted the communicator");
        for (const std::uint32_t rank : {0U, 1U, 3U})
            expect_failed(ranks.member(rank), "rank 2 has aborted");
    }
}

void who_leaves_fails_only_who_needs_it(void **) {
    const Job job;
    for (const auto placement : kPlacements) {
        std::vector<std::vector<std::int32_t>> numbers(3, std::vector<std::int32_t>(100'000, 1));
        Ranks ranks(job, 3, placement);
        ranks.carry_out({{sum_of(numbers[0])}, {sum_of(numbers[1])}, {sum_of(numbers[2])}});
        ranks.member(1).leave();
        if (auto left =
                singularity::wait_until([&] { return ranks.member(1).over(); }, soon(), "a rank to leave");
            !left)
            fail(left.error().message());
        assert_true(numbers[0] == std::vector<std::int32_t>(100'000, 3));
        assert_int_equal(std::to_underlying(ranks.member(0).state().phase),
                         std::to_underlying(CommunicatorPhase::ready));
        ranks.issue(0, {sum_of(numbers[0])});
        expect_failed(ranks.member(0), "rank 1 has left");
        expect_failed(ranks.member(2), "rank 1 has left");
    }
}

// A program that ends right behind ncclCommDestroy: its context goes before its member is through with
// leaving.
void who_has_left_is_not_missed(void **) {
    const Job job;
    for (const auto placement : kPlacements) {
        std::vector<std::vector<std::int32_t>> numbers(3, std::vector<std::int32_t>(1000, 1));
        Ranks ranks(job, 3, placement);
        ranks.carry_out({{sum_of(numbers[0])}, {sum_of(numbers[1])}, {sum_of(numbers[2])}});
        ranks.member(1).leave();
        ranks.member(1).abort("has destroyed its context");
        if (auto left =
                singularity::wait_until([&] { return ranks.member(1).over(); }, soon(), "a rank to leave");
            !left)
            fail(left.error().message());
        for (const std::uint32_t rank : {0U, 2U})
            assert_int_equal(std::to_underlying(ranks.member(rank).state().phase),
                             std::to_underlying(CommunicatorPhase::ready));
    }
}

// What waits for a failed member is let go when its owner does nothing about it, and nothing is taken any
// more.
void a_failure_is_waited_for_only_so_long(void **) {
    auto engine = collectives::Engine::start({});
    assert_true(engine.has_value());
    std::atomic<std::uint64_t> let_go = 0;
    std::atomic<bool> by_owner = true;
    std::vector<std::shared_ptr<collectives::Member>> members;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        collectives::MemberEvents events;
        if (rank == 0)
            events.released = [&](std::uint64_t issued, bool aborted) {
                by_owner = aborted;
                let_go = issued;
            };
        auto member = (*engine)->join({.key = {1, 1},
                                       .rank = rank,
                                       .size = 2,
                                       .completed = 0,
                                       .patience = std::chrono::milliseconds(50)},
                                      std::move(events));
        assert_true(member.has_value());
        members.push_back(std::move(*member));
    }
    std::vector<std::int32_t> numbers(10);
    assert_true(members[0]->issue({sum_of(numbers)}));
    std::thread thread([&] {
        collectives::HostMover mover;
        members[0]->run(mover);
    });
    members[0]->begin(1);
    members[1]->abort("is no more");
    const auto released = singularity::wait_until([&] { return let_go == 1; }, soon(), "a member to let go");
    assert_true(released.has_value() && !by_owner);
    assert_false(members[0]->issue({sum_of(numbers)}));
    members[0]->leave();
    thread.join();
}

// What a process of a job is told before it may begin: so that no thread is there when it is forked.
struct Child {
    pid_t pid = -1;
    int go = -1;   // a byte: begin
    int said = -1; // a line for each group that is complete, then why it has ended
};

[[noreturn]] void be_rank(std::uint32_t rank, std::uint32_t size, const collectives::EngineOptions &options,
                          int go, int say) {
    std::byte byte{};
    if (read(go, &byte, 1) != 1)
        _exit(3);
    auto engine = collectives::Engine::start(options);
    if (!engine)
        _exit(4);
    auto member = (*engine)->join({.key = {5, 5}, .rank = rank, .size = size, .completed = 0}, {});
    if (!member)
        _exit(5);
    std::thread([one = *member] {
        collectives::HostMover mover;
        one->run(mover);
    }).detach();
    for (std::uint64_t group = 1;; ++group) {
        // More than sockets hold: a process is stopped or killed in the middle of a message.
        std::vector<std::int32_t> numbers(2'000'000, static_cast<std::int32_t>(rank + group));
        const auto sum = static_cast<std::int32_t>(size * (size - 1) / 2 + size * group);
        if ((*member)->issue({sum_of(numbers)}))
            (*member)->begin(group);
        // It may be stopped for a while.
        const auto state = (*member)->wait(group, singularity::Deadline::after(std::chrono::minutes(2)));
        if (state.phase == CommunicatorPhase::failed) {
            const auto text = fmt::format("failed: {}\n", state.failure.text);
            _exit(write(say, text.data(), text.size()) > 0 && state.failure.remote ? 0 : 6);
        }
        if (state.completed < group || numbers != std::vector<std::int32_t>(numbers.size(), sum))
            _exit(7);
        if (write(say, ".\n", 2) != 2)
            _exit(8);
    }
}

// Forked before the test has any thread: OpenSSL's locks, say, are not for a child to find held.
class Processes {
  public:
    Processes(const char *name, std::uint32_t size, bool hosts) {
        auto &options = options_;
        options.key = *collectives::make_job_key();
        options.rendezvous = fmt::format("unix:@collectives-{}-{}", getpid(), name);
        options.address = "tcp:127.0.0.1:0";
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            options.host = hosts ? fmt::format("host{}", rank) : "host";
            int go[2];
            int said[2];
            assert_int_equal(pipe2(go, O_CLOEXEC), 0);
            assert_int_equal(pipe2(said, O_CLOEXEC), 0);
            const pid_t pid = fork();
            if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(said[0]);
                be_rank(rank, size, options, go[0], said[1]);
            }
            close(go[0]);
            close(said[1]);
            children_.push_back({.pid = pid, .go = go[1], .said = said[0]});
        }
    }
    void begin() {
        auto rendezvous = collectives::Rendezvous::start(options_.rendezvous, options_.key);
        if (!rendezvous)
            fail(rendezvous.error().message());
        rendezvous_ = std::move(*rendezvous);
        for (const auto &child : children_)
            assert_int_equal(write(child.go, "!", 1), 1);
    }
    Processes(const Processes &) = delete;
    Processes &operator=(const Processes &) = delete;
    Processes(Processes &&) = delete;
    Processes &operator=(Processes &&) = delete;
    ~Processes() {
        for (const auto &child : children_) {
            if (child.pid > 0) {
                kill(child.pid, SIGKILL);
                waitpid(child.pid, nullptr, 0);
            }
            close(child.go);
            close(child.said);
        }
    }
    // Reads a line.
    std::string hear(std::uint32_t rank) {
        std::string line;
        for (char byte = 0; byte != '\n'; line += byte) {
            pollfd one{.fd = children_[rank].said, .events = POLLIN, .revents = 0};
            if (poll(&one, 1, 30'000) != 1)
                fail(fmt::format("rank {} says nothing for 30 s", rank));
            if (read(children_[rank].said, &byte, 1) != 1)
                return fmt::format("it has ended with wait status {:#x}", reap(rank));
        }
        return line;
    }
    void signal(std::uint32_t rank, int number) { kill(children_[rank].pid, number); }
    void stop_all() {
        for (const auto &child : children_) {
            kill(child.pid, SIGSTOP);
            int status = 0;
            assert_int_equal(waitpid(child.pid, &status, WUNTRACED), child.pid);
            assert_true(WIFSTOPPED(status));
        }
    }
    void go_on() {
        for (const auto &child : children_)
            kill(child.pid, SIGCONT);
    }
    // Groups whose lines it has written, and nobody has read.
    std::size_t not_heard_yet(std::uint32_t rank) {
        int bytes = 0;
        assert_int_equal(ioctl(children_[rank].said, FIONREAD, &bytes), 0);
        return static_cast<std::size_t>(bytes) / 2;
    }
    int reap(std::uint32_t rank) {
        int status = -1;
        waitpid(std::exchange(children_[rank].pid, -1), &status, 0);
        return status;
    }
    // All but one fail, by themselves. The first that does has this reason; the others that one, or that the
    // first has left.
    void expect_others_fail(std::uint32_t rank, std::string_view why) {
        bool told = false;
        std::string said;
        for (std::uint32_t other = 0; other < children_.size(); ++other) {
            if (other == rank)
                continue;
            std::string line;
            do
                line = hear(other);
            while (line == ".\n");
            expect_contains(line, "that has its rank is lost");
            said += line;
            told = told || line.contains(why);
            assert_int_equal(reap(other), 0);
        }
        if (!told)
            fail(fmt::format("none of the others says {:?}, but:\n{}", why, said));
    }

  private:
    collectives::EngineOptions options_;
    std::vector<Child> children_;
    std::unique_ptr<collectives::Rendezvous> rendezvous_;
};

struct Scenes {
    Processes killed_beside{"beside", 4, false};
    Processes killed_distant{"distant", 4, true};
    Processes silent{"silent", 3, true};
    Processes stopped{"stopped", 3, true};
};
Scenes *scenes = nullptr;

void let_five_groups_pass(Processes &processes, std::uint32_t rank) {
    processes.begin();
    for (int group = 0; group < 5; ++group)
        expect_equal(processes.hear(rank), ".\n");
}

void a_killed_process_fails_the_others(void **) {
    for (auto *processes : {&scenes->killed_beside, &scenes->killed_distant}) {
        let_five_groups_pass(*processes, 2);
        processes->signal(2, SIGKILL);
        processes->reap(2);
        processes->expect_others_fail(2, "that has its rank is lost");
    }
}

// A host that is gone says nothing, not even that it is. But who was stopped for as long, as all are on a
// machine that is, has no reason to miss anybody.
void a_silent_host_fails_the_others(void **) {
    auto &stopped = scenes->stopped;
    let_five_groups_pass(stopped, 0);
    stopped.stop_all();
    let_five_groups_pass(scenes->silent, 1);
    scenes->silent.signal(1, SIGSTOP);
    scenes->silent.expect_others_fail(1, "sign of life");
    const auto before = stopped.not_heard_yet(0);
    stopped.go_on();
    for (std::size_t group = 0; group < before + 5; ++group)
        expect_equal(stopped.hear(0), ".\n");
}

} // namespace

int main() {
    Scenes all;
    scenes = &all;
    singularity::log::set_level(singularity::log::Level::kError); // refusals are what is tested
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_process_fails_the_others),
        cmocka_unit_test(a_silent_host_fails_the_others),
        cmocka_unit_test(a_failure_is_waited_for_only_so_long),
        cmocka_unit_test(who_aborts_fails_all),
        cmocka_unit_test(who_leaves_fails_only_who_needs_it),
        cmocka_unit_test(who_has_left_is_not_missed),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
