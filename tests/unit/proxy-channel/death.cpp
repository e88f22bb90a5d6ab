// SPDX-License-Identifier: GPL-2.0-or-later
// One side is killed while the other waits, in every place where it can wait. Real processes: the daemon's
// side is the child in one half of the tests, the client's in the other.
#include "pair.hpp"

#include <functional>
#include <thread>
#include <vector>

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity::test;
namespace channel = singularity::channel;
using singularity::Deadline;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAtMost{10'000}; // a deadline; what it really takes is measured by the bench

pid_t start(const std::function<void()> &run) {
    const pid_t child = fork();
    if (child < 0)
        fail(singularity::errno_error("start", "a process").message());
    if (child == 0) {
        run();
        _exit(0);
    }
    return child;
}

void kill_and_reap(pid_t child) {
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, nullptr, 0), child);
}

// The child has the daemon's end and takes `records` records, answers none, then waits for its death.
// `wait` must end with an error within a second of the death.
void daemon_dies_while(int records,
                       const std::function<singularity::Expected<void>(channel::ClientEnd &)> &wait) {
    auto server = need(channel::ServerEnd::create(small_geometry()));
    auto [ours, theirs] = socket_pair();
    const pid_t child = start([&] {
        ours.reset();
        for (int i = 0; i < records; ++i)
            server->release(*need(server->next(soon())));
        assert_int_equal(write(theirs.get(), "x", 1), 1);
        pause();
    });
    theirs.reset();
    channel::ClientEnd client(need(channel::Segment::map(server->segment_fd(), server->geometry())),
                              need(channel::Link::adopt(std::move(ours))));
    std::atomic<Clock::rep> ended = 0;
    std::atomic<int> code = -1;
    std::jthread waiter([&] {
        const auto waited = wait(client);
        ended = Clock::now().time_since_epoch().count();
        code = waited ? 0 : waited.error().code;
    });
    // The watcher of a client: notes the hang-up. The first byte says that the daemon is where the test wants
    // it.
    pollfd socket{.fd = client.link().fd(), .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&socket, 1, 20'000), 1);
    char byte = 0;
    assert_int_equal(read(socket.fd, &byte, 1), 1);
    const auto killed = Clock::now();
    kill_and_reap(child);
    assert_int_equal(poll(&socket, 1, 1000), 1);
    assert_false(client.link().receive().has_value());
    client.mark_dead();
    waiter.join();
    assert_int_equal(code, ENOTCONN);
    assert_true(Clock::duration(ended) - killed.time_since_epoch() < kAtMost);
    // And everything later fails at once.
    assert_false(client.begin(0, 8).has_value());
    assert_false(client.prepare_reply(8).has_value());
    assert_false(client.try_prepare_reply(8).has_value());
}

void daemon_dies_while_a_reply_is_awaited(void **) {
    daemon_dies_while(1, [](channel::ClientEnd &client) -> singularity::Expected<void> {
        auto pending = need(client.prepare_reply(8));
        put(client, bytes_of(1), &pending);
        if (auto reply = pending.wait(); !reply)
            return propagate(reply);
        return {};
    });
}

void daemon_dies_while_the_ring_is_full(void **) {
    daemon_dies_while(1, [](channel::ClientEnd &client) -> singularity::Expected<void> {
        for (;;) {
            auto record = client.begin(0, 1000);
            if (!record)
                return propagate(record);
            record->commit();
        }
    });
}

void daemon_dies_while_all_slots_are_taken(void **) {
    daemon_dies_while(0, [](channel::ClientEnd &client) -> singularity::Expected<void> {
        std::vector<channel::Pending> held;
        for (;;) {
            auto pending = client.prepare_reply(8);
            if (!pending)
                return propagate(pending);
            held.push_back(std::move(*pending));
        }
    });
}

void daemon_dies_and_an_abandoned_call_ends(void **) {
    daemon_dies_while(1, [](channel::ClientEnd &client) -> singularity::Expected<void> {
        {
            auto pending = need(client.prepare_reply(8));
            put(client, bytes_of(1), &pending);
        }
        auto after = client.prepare_reply(8);
        return after ? singularity::Expected<void>{} : propagate(after);
    });
}

// The child is the client, killed in the middle of writing and with a call in flight; the daemon's end sees
// the hang-up on the socket and its next() goes on to its deadline without harm.
void client_dies_at_work(void **) {
    auto server = need(channel::ServerEnd::create(small_geometry()));
    auto [ours, theirs] = socket_pair();
    const pid_t child = start([&] {
        theirs.reset();
        channel::ClientEnd client(need(channel::Segment::map(server->segment_fd(), server->geometry())),
                                  need(channel::Link::adopt(std::move(ours))));
        auto pending = need(client.prepare_reply(8));
        put(client, bytes_of(1), &pending);
        auto unfinished = need(client.begin(0, 1000));
        std::ranges::fill(unfinished.message(), std::byte{0xff});
        static_cast<void>(pending.wait());
    });
    ours.reset();
    const auto record = *need(server->next(soon()));
    kill_and_reap(child);
    pollfd socket{.fd = theirs.get(), .events = POLLIN, .revents = 0};
    assert_int_equal(poll(&socket, 1, 1000), 1);
    auto link = need(channel::Link::adopt(std::move(theirs)));
    const auto packet = link.receive();
    assert_false(packet.has_value());
    assert_int_equal(packet.error().code, ECONNRESET);
    need(server->reply(record.header, record.message, 0));
    server->release(record);
    assert_false(need(server->next(Deadline::after(milliseconds(20)))).has_value());
}

// next() sleeps; interrupt() by whoever noticed the death ends it at once.
void sleeping_consumer_is_interrupted(void **) {
    auto server = need(channel::ServerEnd::create(small_geometry()));
    std::atomic<bool> ended = false;
    std::jthread consumer([&] {
        assert_false(need(server->next(soon())).has_value());
        ended = true;
    });
    const auto segment = need(channel::Segment::map(server->segment_fd(), server->geometry()));
    assert_true(wait_until([&] { return segment.control().consumer_sleeps.load() == 1; }, soon(),
                           "the consumer's sleep")
                    .has_value());
    const auto start_time = Clock::now();
    server->interrupt();
    consumer.join();
    assert_true(ended);
    assert_true(Clock::now() - start_time < kAtMost);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(daemon_dies_while_a_reply_is_awaited),
        cmocka_unit_test(daemon_dies_while_the_ring_is_full),
        cmocka_unit_test(daemon_dies_while_all_slots_are_taken),
        cmocka_unit_test(daemon_dies_and_an_abandoned_call_ends),
        cmocka_unit_test(client_dies_at_work),
        cmocka_unit_test(sleeping_consumer_is_interrupted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
