// SPDX-License-Identifier: GPL-2.0-or-later
// Records and replies between two honest ends.
#include "pair.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace {

using namespace singularity::test;
namespace channel = singularity::channel;
using singularity::Deadline;

struct Numbered {
    std::uint32_t thread;
    std::uint32_t number;
};

// Records of one thread arrive in its order, whatever the others do; every byte of every record arrives, at
// every place of the ring.
void threads_keep_their_order(void **) {
    constexpr std::uint32_t kThreads = 4;
    constexpr std::uint32_t kRecords = 5000;
    ChannelPair pair;
    std::vector<std::jthread> threads;
    for (std::uint32_t thread = 0; thread < kThreads; ++thread)
        threads.emplace_back([&pair, thread] {
            std::vector<std::byte> message(1024);
            for (std::uint32_t number = 0; number < kRecords; ++number) {
                const auto size = sizeof(Numbered) + (number * 37 + thread * 11) % (1024 - sizeof(Numbered));
                std::ranges::fill(message, static_cast<std::byte>(number));
                const Numbered mine{.thread = thread, .number = number};
                std::memcpy(message.data(), &mine, sizeof(mine));
                put(*pair.client, std::span(message).first(size), nullptr, thread + 1);
            }
        });
    std::array<std::uint32_t, kThreads> expected{};
    std::uint64_t last_ticket = 0;
    for (std::uint32_t i = 0; i < kThreads * kRecords; ++i) {
        const auto record = pair.next();
        const auto got = value_of<Numbered>(record.message);
        assert_true(got.thread < kThreads);
        assert_int_equal(got.number, expected[got.thread]);
        ++expected[got.thread];
        assert_int_equal(record.header.context, got.thread + 1);
        assert_int_equal(record.header.ticket, last_ticket + 1);
        last_ticket = record.header.ticket;
        assert_int_equal(record.message.size(),
                         sizeof(Numbered) + (got.number * 37 + got.thread * 11) % (1024 - sizeof(Numbered)));
        assert_true(std::ranges::all_of(record.message.subspan(sizeof(Numbered)), [&](std::byte b) {
            return b == static_cast<std::byte>(got.number);
        }));
        pair.server->release(record);
    }
    threads.clear();
    assert_int_equal(pair.client->statistics().records, kThreads * kRecords);
    assert_true(pair.client->statistics().full_waits > 0);
}

void full_ring_waits_for_room(void **) {
    ChannelPair pair;
    // Four records of 1024 bytes with their headers do not fit into 4096.
    const std::vector<std::byte> message(1000);
    std::atomic<int> written = 0;
    std::jthread writer([&] {
        for (int i = 0; i < 8; ++i) {
            put(*pair.client, message);
            ++written;
        }
    });
    assert_true(wait_until([&] { return written == 3; }, soon(), "three records").has_value());
    const auto first = pair.next();
    const auto second = pair.next();
    // Room comes back in order: releasing the second gives nothing yet.
    pair.server->release(second);
    assert_int_equal(written, 3);
    pair.server->release(first);
    for (int i = 2; i < 8; ++i)
        pair.server->release(pair.next());
    writer.join();
    assert_int_equal(written, 8);
}

void messages_have_limits(void **) {
    ChannelPair pair;
    const auto refused = pair.client->begin(0, 1025);
    assert_false(refused.has_value());
    assert_int_equal(refused.error().code, EMSGSIZE);
    put(*pair.client, std::vector<std::byte>(1024));
    assert_int_equal(pair.next().message.size(), 1024);
    assert_false(pair.client->prepare_reply(8193).has_value());
}

void record_may_turn_out_shorter_or_not_at_all(void **) {
    ChannelPair pair;
    {
        auto record = need(pair.client->begin(0, 1000));
        static_cast<void>(record.message());
    }
    auto record = need(pair.client->begin(7, 1000, nullptr, 5 << 8));
    record.message()[0] = std::byte{42};
    record.commit(1);
    const auto got = pair.next();
    assert_int_equal(got.message.size(), 1);
    assert_int_equal(static_cast<int>(got.message[0]), 42);
    assert_int_equal(got.header.flags, 5 << 8);
    assert_int_equal(got.header.context, 7);
    put(*pair.client, std::vector<std::byte>(3));
    assert_int_equal(pair.next().message.size(), 3);
}

// Short ones in the slot, long ones in the piece; the packets' number comes with them.
void replies_of_every_length(void **) {
    ChannelPair pair;
    std::jthread server([&] {
        for (int i = 0; i < 6; ++i) {
            const auto record = pair.next();
            const auto size = value_of<std::uint32_t>(record.message);
            pair.server->release(record);
            std::vector<std::byte> answer(size, static_cast<std::byte>(size));
            need(pair.server->reply(record.header, answer, size + 1));
        }
    });
    for (const std::uint32_t size : {0U, 1U, 64U, 65U, 8000U, 8192U}) {
        auto pending = need(pair.client->prepare_reply(size));
        assert_true(pending.capacity() >= size);
        put(*pair.client, bytes_of(size), &pending);
        const auto reply = need(pending.wait());
        assert_int_equal(reply.message.size(), size);
        assert_int_equal(reply.packets, size + 1);
        assert_true(std::ranges::all_of(reply.message,
                                        [&](std::byte b) { return b == static_cast<std::byte>(size); }));
        assert_true(pending.ready());
    }
}

void answer_that_does_not_fit_is_the_clients_fault(void **) {
    ChannelPair pair;
    auto pending = need(pair.client->prepare_reply(64));
    put(*pair.client, bytes_of(1), &pending);
    const auto record = pair.next();
    assert_int_equal(pair.server->reply_capacity(record.header), 64);
    const std::vector<std::byte> answer(65);
    const auto refused = pair.server->reply(record.header, answer, 0);
    assert_false(refused.has_value());
    expect_contains(refused.error().message(), "it left room for 64");
    need(pair.server->reply(record.header, std::span(answer).first(64), 0));
    assert_int_equal(need(pending.wait()).message.size(), 64);
}

// Several calls in flight, answered backwards, by many threads at once with fewer slots than threads.
void many_calls_in_flight(void **) {
    constexpr int kThreads = 6;
    constexpr int kCalls = 2000;
    ChannelPair pair;
    std::jthread server([&] {
        std::vector<channel::Record> held;
        for (int left = kThreads * kCalls; left > 0;) {
            auto record = need(
                pair.server->next(Deadline::after(std::chrono::milliseconds(held.empty() ? 20'000 : 0))));
            if (record)
                held.push_back(*record);
            if (record && held.size() < 3)
                continue;
            while (!held.empty()) {
                const auto number = value_of<std::uint64_t>(held.back().message);
                pair.server->release(held.back());
                need(pair.server->reply(held.back().header, bytes_of(number), 0));
                held.pop_back();
                --left;
            }
        }
    });
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
        threads.emplace_back([&pair, thread] {
            for (int i = 0; i < kCalls; ++i) {
                const auto number = static_cast<std::uint64_t>(thread * kCalls + i);
                auto pending = need(pair.client->prepare_reply(i % 2 == 0 ? 8 : 5000));
                auto second = need(pair.client->try_prepare_reply(8));
                put(*pair.client, bytes_of(number), &pending);
                second.reset();
                assert_int_equal(value_of<std::uint64_t>(need(pending.wait()).message), number);
            }
        });
}

// A Pending that nobody waits for holds its slot until the daemon has answered.
void abandoned_call_waits_for_its_answer(void **) {
    ChannelPair pair;
    std::atomic<bool> gone = false;
    std::jthread caller([&] {
        {
            auto pending = need(pair.client->prepare_reply(8));
            put(*pair.client, bytes_of(1), &pending);
        }
        gone = true;
    });
    const auto record = pair.next();
    assert_false(gone);
    need(pair.server->reply(record.header, {}, 0));
    caller.join();
    assert_true(gone);
}

void next_ends_at_its_deadline_and_when_interrupted(void **) {
    ChannelPair pair;
    assert_false(need(pair.server->next(Deadline::after(std::chrono::milliseconds(5)))).has_value());
    std::jthread interrupter([&] { pair.server->interrupt(); });
    assert_false(need(pair.server->next(soon())).has_value());
    assert_true(pair.server->interrupted());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(threads_keep_their_order),
        cmocka_unit_test(full_ring_waits_for_room),
        cmocka_unit_test(messages_have_limits),
        cmocka_unit_test(record_may_turn_out_shorter_or_not_at_all),
        cmocka_unit_test(replies_of_every_length),
        cmocka_unit_test(answer_that_does_not_fit_is_the_clients_fault),
        cmocka_unit_test(many_calls_in_flight),
        cmocka_unit_test(abandoned_call_waits_for_its_answer),
        cmocka_unit_test(next_ends_at_its_deadline_and_when_interrupted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
