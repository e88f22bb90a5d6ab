// SPDX-License-Identifier: GPL-2.0-or-later
// Communicators of clients of one daemon or of several, with the fake driver behind it.
#include "proxy/collectives/rendezvous.hpp"
#include "proxy_process.hpp"

#include <algorithm>
#include <csignal>
#include <numeric>
#include <optional>

#include <unistd.h>

namespace {

using namespace singularity::test;
namespace collectives = singularity::collectives;
namespace driver_api = singularity::driver_api;
namespace protocol = singularity::protocol;
using protocol::CollectiveKind;
using protocol::CommunicatorPhase;

constexpr std::uint64_t kCommunicator = 7;
constexpr std::uint32_t kFloat = 7;

// One client that is one rank, with a slab and a stream.
class Rank {
  public:
    Rank(const ProxyProcess &proxy, std::uint32_t rank, std::uint32_t size)
        : client(proxy.socket()), rank_(rank), size_(size) {
        client.make_context();
        slab = client.map_slab(0, 4 * protocol::kSlabUnit);
        driver_api::StreamCreateRequest request;
        request.phStream = stream;
        assert_int_equal(client.driver_result(request), 0);
    }

    std::int32_t join(std::uint64_t key, std::uint64_t number = kCommunicator) {
        return client.result(protocol::JoinCommunicator{
            .communicator = number, .key = {key, 1}, .rank = rank_, .size = size_});
    }
    struct State {
        CommunicatorPhase phase;
        std::uint32_t result;
        std::uint64_t completed;
        std::string text;
    };
    State state(std::uint64_t completed = 0) {
        const auto bytes = client.ask(protocol::CommunicatorState{
            .communicator = kCommunicator, .completed = completed, .wait_ms = 100});
        const auto reply = need(protocol::decode_reply<protocol::CommunicatorState>(bytes));
        assert_int_equal(reply.result, 0);
        return {.phase = static_cast<CommunicatorPhase>(reply.fixed.phase),
                .result = reply.fixed.result,
                .completed = reply.fixed.completed,
                .text = std::string(protocol::text_of(reply.buffers[0]))};
    }
    // Waits for a phase; what is said then.
    State expect(CommunicatorPhase phase) {
        State now{};
        need(singularity::wait_until(
            [&] {
                now = state();
                return now.phase == phase;
            },
            soon(), "a communicator's phase"));
        return now;
    }
    void issue(std::vector<protocol::CollectiveOperation> operations, std::uint64_t more = 0) {
        if (!open_)
            ++group;
        open_ = more != 0;
        client.send(
            protocol::IssueCollectives{
                .communicator = kCommunicator, .stream = stream, .group = group, .more = more},
            {protocol::view_of_elements(std::span<const protocol::CollectiveOperation>(operations))});
    }
    void write_floats(std::uint64_t at, const std::vector<float> &values) {
        const auto bytes = std::as_bytes(std::span(values));
        for (std::size_t done = 0; done < bytes.size(); done += protocol::kWritePiece)
            client.write(slab + at + done,
                         bytes.subspan(done, std::min(protocol::kWritePiece, bytes.size() - done)));
    }
    std::vector<float> read_floats(std::uint64_t at, std::size_t count) {
        std::vector<float> values(count);
        const auto bytes = std::as_writable_bytes(std::span(values));
        for (std::size_t done = 0; done < bytes.size(); done += protocol::kReadPiece) {
            const auto part =
                client.read(slab + at + done, std::min(protocol::kReadPiece, bytes.size() - done));
            std::ranges::copy(part, bytes.subspan(done).begin());
        }
        return values;
    }

    Client client;
    std::uint64_t slab = 0;
    std::uint64_t stream = handle(driver_api::kHandleStream, 5);
    std::uint64_t group = 0;

  private:
    std::uint32_t rank_;
    std::uint32_t size_;
    bool open_ = false;
};

std::vector<std::unique_ptr<Rank>> make_ranks(const ProxyProcess &proxy, std::uint32_t size) {
    std::vector<std::unique_ptr<Rank>> ranks;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
        ranks.push_back(std::make_unique<Rank>(proxy, rank, size));
        assert_int_equal(ranks.back()->join(size), 0);
        if (rank + 1 < size)
            assert_int_equal(std::to_underlying(ranks.back()->state().phase),
                             std::to_underlying(CommunicatorPhase::joining));
    }
    for (const auto &rank : ranks)
        rank->expect(CommunicatorPhase::ready);
    return ranks;
}

void ranks_of_one_daemon_reduce(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    const auto ranks = make_ranks(proxy, 3);
    constexpr std::size_t kCount = 300'000; // several rounds
    constexpr std::uint64_t kOutput = kCount * sizeof(float);
    std::vector<float> expected(kCount);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        std::vector<float> values(kCount);
        for (std::size_t index = 0; index < kCount; ++index)
            values[index] = 0.1F * static_cast<float>(index % 1000) + static_cast<float>(rank);
        for (std::size_t index = 0; index < kCount; ++index)
            expected[index] = rank == 0 ? values[index] : expected[index] + values[index];
        ranks[rank]->write_floats(0, values);
    }
    for (const auto &rank : ranks)
        rank->issue({{.kind = std::to_underlying(CollectiveKind::all_reduce),
                      .type = kFloat,
                      .count = kCount,
                      .input = rank->slab,
                      .output = rank->slab + kOutput}});
    for (const auto &rank : ranks) {
        assert_int_equal(rank->client.synchronize(rank->stream), 0);
        assert_true(rank->read_floats(kOutput, kCount) == expected);
        assert_int_equal(rank->state(1).completed, 1);
    }
    // What is issued on a stream is behind what the stream does before it, and in front of what comes after.
    for (const auto &rank : ranks) {
        rank->issue({{.kind = std::to_underlying(CollectiveKind::broadcast),
                      .type = kFloat,
                      .peer = 2,
                      .count = 1,
                      .input = rank->slab,
                      .output = rank->slab + kOutput}});
        rank->client.send(protocol::CopyMemory{.destination = rank->slab + 2 * kOutput,
                                               .source = rank->slab + kOutput,
                                               .size = sizeof(float),
                                               .stream = rank->stream});
    }
    for (const auto &rank : ranks) {
        assert_int_equal(rank->client.synchronize(rank->stream), 0);
        assert_true(rank->read_floats(2 * kOutput, 1) == std::vector<float>{2.0F});
        assert_int_equal(rank->client.result(protocol::LeaveCommunicator{.communicator = kCommunicator}), 0);
    }
}

protocol::CollectiveOperation sum_of(const Rank &rank) {
    return {.kind = std::to_underlying(CollectiveKind::all_reduce),
            .type = kFloat,
            .count = 4,
            .input = rank.slab,
            .output = rank.slab + 64};
}

// A copy that waits inside the driver keeps others out of its context: the collective could not go on.
void copies_behind_a_collective_wait_for_it(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    const auto ranks = make_ranks(proxy, 2);
    for (const auto &rank : ranks)
        rank->write_floats(0, std::vector<float>(4, 1.5F));
    constexpr float kAfter = 8.0F;
    const std::vector<float> after(protocol::kWritePiece / sizeof(float), kAfter);
    std::vector<std::thread> threads;
    std::vector<std::vector<float>> read(ranks.size());
    for (std::size_t index = 0; index < ranks.size(); ++index)
        threads.emplace_back([&, index] {
            auto &rank = *ranks[index];
            for (int round = 0; round < 20; ++round) {
                rank.issue({sum_of(rank)});
                // More than waits in pinned memory.
                for (std::uint64_t piece = 0; piece < 40; ++piece)
                    rank.client.write(rank.slab + ((piece % 4 + 1) << 20), std::as_bytes(std::span(after)),
                                      rank.stream);
                const auto bytes = rank.client.read(rank.slab + 64, 4 * sizeof(float), rank.stream);
                read[index].resize(4);
                std::ranges::copy(bytes, std::as_writable_bytes(std::span(read[index])).begin());
            }
        });
    for (auto &thread : threads)
        thread.join();
    for (std::size_t index = 0; index < ranks.size(); ++index) {
        assert_true(read[index] == std::vector<float>(4, 3.0F));
        assert_true(ranks[index]->read_floats(1 << 20, 1) == std::vector<float>{kAfter});
    }
}

// A driver whose queue is full keeps others out of its context as well.
void a_collective_goes_on_with_many_calls_behind_it(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    const auto ranks = make_ranks(proxy, 2);
    for (const auto &rank : ranks)
        rank->write_floats(0, std::vector<float>(4, 1.5F));
    std::vector<std::thread> threads;
    for (std::size_t index = 0; index < ranks.size(); ++index)
        threads.emplace_back([&, index] {
            auto &rank = *ranks[index];
            // The other comes when the first has done all that it can.
            if (index == 1)
                std::this_thread::sleep_for(std::chrono::milliseconds(200));
            for (std::uint64_t round = 0; round < 10; ++round) {
                rank.issue({sum_of(rank)});
                for (std::uint64_t copy = 0; copy < 300; ++copy)
                    rank.client.send(
                        protocol::CopyMemory{.destination = rank.slab + (1 << 20) + round * sizeof(float),
                                             .source = rank.slab + 64,
                                             .size = sizeof(float),
                                             .stream = rank.stream});
            }
        });
    for (auto &thread : threads)
        thread.join();
    for (const auto &rank : ranks) {
        assert_int_equal(rank->client.synchronize(rank->stream), 0);
        assert_true(rank->read_floats(1 << 20, 10) == std::vector<float>(10, 3.0F));
    }
}

// Ranks that are threads of one process: what the collective lacks lies behind other calls.
void two_ranks_of_one_client_meet(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    Rank first(proxy, 0, 2);
    auto &client = first.client;
    constexpr std::uint64_t kOther = 8;
    assert_int_equal(first.join(1), 0);
    assert_int_equal(client.result(protocol::JoinCommunicator{
                         .communicator = kOther, .key = {1, 1}, .rank = 1, .size = 2}),
                     0);
    first.expect(CommunicatorPhase::ready);
    driver_api::StreamCreateRequest request;
    request.phStream = handle(driver_api::kHandleStream, 6);
    assert_int_equal(client.driver_result(request), 0);
    first.write_floats(0, std::vector<float>(4, 1.5F));
    for (std::uint64_t round = 1; round <= 3; ++round) {
        first.issue({sum_of(first)});
        for (int copy = 0; copy < 400; ++copy)
            client.send(protocol::CopyMemory{.destination = first.slab + (1 << 20),
                                             .source = first.slab + 64,
                                             .size = sizeof(float),
                                             .stream = first.stream});
        auto other = sum_of(first);
        other.output += 64;
        const std::array operations{other};
        client.send(
            protocol::IssueCollectives{.communicator = kOther, .stream = request.phStream, .group = round},
            {protocol::view_of_elements(std::span<const protocol::CollectiveOperation>(operations))});
    }
    assert_int_equal(client.synchronize(first.stream), 0);
    assert_int_equal(client.synchronize(request.phStream), 0);
    assert_true(first.read_floats(1 << 20, 1) == std::vector<float>{3.0F});
    assert_true(first.read_floats(128, 4) == std::vector<float>(4, 3.0F));
}

// Nobody else comes: the client's calls are held back, and its abort passes them.
void an_abort_overtakes_what_waits(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    const auto ranks = make_ranks(proxy, 2);
    auto &rank = *ranks[0];
    rank.write_floats(0, std::vector<float>(4, 1.5F));
    rank.issue({sum_of(rank)});
    for (int copy = 0; copy < 2000; ++copy)
        rank.client.send(protocol::CopyMemory{.destination = rank.slab + (1 << 20),
                                              .source = rank.slab,
                                              .size = sizeof(float),
                                              .stream = rank.stream});
    rank.client.send_packet(singularity::channel::PacketType::aborted, 12345); // nobody's
    rank.client.send_packet(singularity::channel::PacketType::aborted, kCommunicator);
    rank.issue({sum_of(rank)}); // comes too late, twice
    rank.issue({sum_of(rank)});
    assert_int_equal(
        rank.client.result(protocol::LeaveCommunicator{.communicator = kCommunicator, .abort = 1}), 0);
    assert_int_equal(rank.client.synchronize(rank.stream), 0);
    assert_true(rank.read_floats(1 << 20, 1) == std::vector<float>{1.5F});
    expect_contains(ranks[1]->expect(CommunicatorPhase::failed).text, "has aborted the communicator");
}

void a_group_in_parts_goes_around(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    const auto ranks = make_ranks(proxy, 4);
    constexpr std::size_t kCount = 100'000;
    const auto size = static_cast<std::uint32_t>(ranks.size());
    for (std::uint32_t rank = 0; rank < size; ++rank)
        ranks[rank]->write_floats(0, std::vector<float>(kCount, static_cast<float>(rank)));
    for (std::uint32_t rank = 0; rank < size; ++rank) {
        auto &one = *ranks[rank];
        one.issue({{.kind = std::to_underlying(CollectiveKind::send),
                    .type = kFloat,
                    .peer = (rank + 1) % size,
                    .count = kCount,
                    .input = one.slab}},
                  1);
        one.issue({{.kind = std::to_underlying(CollectiveKind::receive),
                    .type = kFloat,
                    .peer = (rank + size - 1) % size,
                    .count = kCount,
                    .output = one.slab + (1 << 20)}});
    }
    for (std::uint32_t rank = 0; rank < size; ++rank) {
        assert_int_equal(ranks[rank]->client.synchronize(ranks[rank]->stream), 0);
        assert_true(ranks[rank]->read_floats(1 << 20, kCount) ==
                    std::vector<float>(kCount, static_cast<float>((rank + size - 1) % size)));
    }
}

void members_exchange_bytes(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    const auto ranks = make_ranks(proxy, 2);
    std::vector<std::thread> threads;
    std::vector<std::string> all(ranks.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        threads.emplace_back([&, rank] {
            const std::string mine = rank == 0 ? "first" : "other";
            const auto bytes = ranks[rank]->client.ask(
                protocol::ExchangeWithMembers{.communicator = kCommunicator, .group = 1, .within_ms = 20'000},
                {protocol::view_of_text(mine)});
            const auto reply = protocol::decode_reply<protocol::ExchangeWithMembers>(bytes);
            if (reply)
                all[rank] = protocol::text_of(reply->buffers[0]);
        });
    for (auto &thread : threads)
        thread.join();
    assert_string_equal(all[0].c_str(), "firstother");
    assert_string_equal(all[1].c_str(), "firstother");
    // One whose partner does not come gets nothing in time.
    const auto bytes = ranks[0]->client.ask(
        protocol::ExchangeWithMembers{.communicator = kCommunicator, .group = 2, .within_ms = 50},
        {protocol::view_of_text("again")});
    const auto reply = need(protocol::decode_reply<protocol::ExchangeWithMembers>(bytes));
    assert_int_equal(reply.result, 0);
    assert_false(reply.buffers[0].present);
}

void who_dies_fails_the_others(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    auto ranks = make_ranks(proxy, 3);
    for (std::size_t rank = 0; rank < 2; ++rank)
        ranks[rank]->issue({sum_of(*ranks[rank])});
    ranks.pop_back();
    for (const auto &rank : ranks) {
        const auto state = rank->expect(CommunicatorPhase::failed);
        assert_int_equal(state.result, 6);
        expect_contains(state.text, "rank 2 has ended");
        // Nobody is held up by it once it is aborted, and no failure of the device is left behind.
        assert_int_equal(
            rank->client.result(protocol::LeaveCommunicator{.communicator = kCommunicator, .abort = 1}), 0);
        assert_int_equal(rank->client.synchronize(rank->stream), 0);
    }
    // The same key means a new communicator.
    ranks.push_back(std::make_unique<Rank>(proxy, 2, 3));
    for (const auto &rank : ranks)
        assert_int_equal(rank->join(3), 0);
    for (const auto &rank : ranks) {
        rank->expect(CommunicatorPhase::ready);
        rank->group = 0;
        rank->issue({sum_of(*rank)});
    }
    for (const auto &rank : ranks)
        assert_int_equal(rank->client.synchronize(rank->stream), 0);
}

void a_context_that_goes_lets_go(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    const auto ranks = make_ranks(proxy, 2);
    ranks[0]->issue({sum_of(*ranks[0])}); // the other never comes
    assert_int_equal(ranks[0]->client.result(protocol::DestroyContext{.context = ranks[0]->client.context}),
                     0);
    expect_contains(ranks[1]->expect(CommunicatorPhase::failed).text, "destroyed its context");
}

void who_disagrees_is_told(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    const auto ranks = make_ranks(proxy, 2);
    auto other = sum_of(*ranks[1]);
    other.count = 5;
    ranks[0]->issue({sum_of(*ranks[0])});
    ranks[1]->issue({other});
    const auto state = ranks[0]->expect(CommunicatorPhase::failed);
    expect_contains(state.text, "ranks do not agree");
    expect_contains(state.text, "count 5");
}

void foreign_memory_is_not_touched(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    const auto ranks = make_ranks(proxy, 2);
    auto foreign = sum_of(*ranks[0]);
    foreign.input = ranks[1]->slab;
    ranks[0]->issue({foreign});
    expect_contains(ranks[1]->expect(CommunicatorPhase::failed).text, "not the program's memory");
    // Far beyond any memory: a size that wraps around would be a small one.
    Rank alone(proxy, 0, 1);
    assert_int_equal(alone.join(99), 0);
    alone.expect(CommunicatorPhase::ready);
    auto large = sum_of(alone);
    large.count = ~std::uint64_t{0} / 4 + 2;
    alone.issue({large});
    expect_contains(alone.expect(CommunicatorPhase::failed).text, "no memory is that large");
}

void rules_of_communicators_are_kept(void **) {
    const Scratch scratch;
    const ProxyProcess proxy(scratch.path());
    {
        Rank rank(proxy, 0, 1);
        assert_int_equal(rank.join(1), 0);
        rank.group = 4;
        rank.issue({sum_of(rank)});
        rank.client.expect_end();
        expect_contains(rank.client.farewell(), "out of turn");
    }
    {
        Rank rank(proxy, 0, 1);
        assert_int_equal(rank.join(1), 0);
        rank.client.send(protocol::IssueCollectives{.communicator = 99, .stream = rank.stream, .group = 1},
                         {protocol::view_of_elements(
                             std::span<const protocol::CollectiveOperation>(std::array{sum_of(rank)}))});
        assert_int_equal(rank.client.synchronize(rank.stream), 400);
    }
    // A rank that somebody has, and a size that others do not mean.
    Rank first(proxy, 0, 2);
    Rank second(proxy, 0, 2);
    Rank third(proxy, 1, 3);
    assert_int_equal(first.join(5), 0);
    assert_int_equal(second.join(5), 1);
    assert_int_equal(third.join(5), 1);
    proxy.expect_log("somebody has joined it with that rank");
    proxy.expect_log("other ranks have joined it with 2 ranks");
}

// Daemons of one job: on one host, or each on a host of its own.
class Daemons {
  public:
    Daemons(std::size_t count, bool hosts)
        : key_(need(collectives::make_job_key())),
          rendezvous_(need(collectives::Rendezvous::start("unix:@", key_))), scratches_(count) {
        for (std::size_t index = 0; index < count; ++index) {
            int ends[2];
            assert_int_equal(pipe(ends), 0); // inherited
            assert_int_equal(write(ends[1], key_.data(), key_.size()), key_.size());
            close(ends[1]);
            daemons_.push_back(std::make_unique<ProxyProcess>(
                scratches_[index].path(),
                std::vector<std::string>{"--rendezvous", rendezvous_->address(), "--job-key-fd",
                                         std::to_string(ends[0]), "--host-name",
                                         hosts ? "host" + std::to_string(index) : "host", "--address",
                                         "tcp:127.0.0.1:0"}));
            close(ends[0]);
        }
    }
    ProxyProcess &operator[](std::size_t index) { return *daemons_[index]; }
    void kill(std::size_t index) { daemons_[index]->end(SIGKILL); }

  private:
    collectives::JobKey key_;
    std::unique_ptr<collectives::Rendezvous> rendezvous_;
    std::vector<Scratch> scratches_;
    std::vector<std::unique_ptr<ProxyProcess>> daemons_;
};

void ranks_of_several_daemons_reduce(void **) {
    for (const bool hosts : {false, true}) {
        Daemons daemons(2, hosts);
        std::vector<std::unique_ptr<Rank>> ranks;
        constexpr std::uint32_t kSize = 4;
        constexpr std::size_t kCount = 300'000;
        std::vector<float> expected(kCount, 0.0F);
        for (std::uint32_t rank = 0; rank < kSize; ++rank) {
            ranks.push_back(std::make_unique<Rank>(daemons[rank % 2], rank, kSize));
            assert_int_equal(ranks.back()->join(1), 0);
            std::vector<float> values(kCount);
            for (std::size_t index = 0; index < kCount; ++index)
                values[index] = static_cast<float>(index % 777) * 0.3F * static_cast<float>(rank + 1);
            for (std::size_t index = 0; index < kCount; ++index)
                expected[index] = rank == 0 ? values[index] : expected[index] + values[index];
            ranks.back()->write_floats(0, values);
        }
        for (const auto &rank : ranks)
            rank->expect(CommunicatorPhase::ready);
        for (const auto &rank : ranks)
            rank->issue({{.kind = std::to_underlying(CollectiveKind::all_reduce),
                          .type = kFloat,
                          .count = kCount,
                          .input = rank->slab,
                          .output = rank->slab}});
        for (const auto &rank : ranks) {
            assert_int_equal(rank->client.synchronize(rank->stream), 0);
            assert_true(rank->read_floats(0, kCount) == expected);
        }
        // A daemon that dies takes its ranks with it; the others learn it.
        ranks[0]->issue({sum_of(*ranks[0])});
        daemons.kill(1);
        const auto state = ranks[0]->expect(CommunicatorPhase::failed);
        assert_int_equal(state.result, 6);
        expect_contains(state.text, hosts ? "host1" : "host");
        ranks[2]->expect(CommunicatorPhase::failed);
        assert_int_equal(
            ranks[0]->client.result(protocol::LeaveCommunicator{.communicator = kCommunicator, .abort = 1}),
            0);
        assert_int_equal(ranks[0]->client.synchronize(ranks[0]->stream), 0);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_daemon_reduce),
        cmocka_unit_test(copies_behind_a_collective_wait_for_it),
        cmocka_unit_test(a_collective_goes_on_with_many_calls_behind_it),
        cmocka_unit_test(an_abort_overtakes_what_waits),
        cmocka_unit_test(two_ranks_of_one_client_meet),
        cmocka_unit_test(a_group_in_parts_goes_around),
        cmocka_unit_test(members_exchange_bytes),
        cmocka_unit_test(who_dies_fails_the_others),
        cmocka_unit_test(a_context_that_goes_lets_go),
        cmocka_unit_test(who_disagrees_is_told),
        cmocka_unit_test(ranks_of_several_daemons_reduce),
        cmocka_unit_test(foreign_memory_is_not_touched),
        cmocka_unit_test(rules_of_communicators_are_kept),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
