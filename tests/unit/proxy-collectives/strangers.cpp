// SPDX-License-Identifier: GPL-2.0-or-later
// Whoever connects to a rendezvous or to a peer may send anything. What is not understood ends that
// connection and what depends on it, and nothing else.
#include "cmocka.hpp"
#include "common/log.hpp"
#include "frames.hpp"
#include "proof.hpp"
#include "proxy/collectives/shape.hpp"
#include "ranks.hpp"
#include "socket.hpp"
#include "words.hpp"

#include <bit>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace singularity::test;
namespace collectives = singularity::collectives;
namespace protocol = singularity::protocol;
using collectives::Purpose;
using collectives::Socket;
using protocol::CommunicatorPhase;

Socket call(const std::string &address) {
    return need(Socket::connect(need(collectives::Address::parse(address)), soon()));
}

void expect_hang_up(Socket &socket) {
    std::array<std::byte, 4096> any{};
    for (;;) {
        const auto got = socket.receive(std::span(any).first(1), soon());
        if (got)
            continue; // what it had said before
        assert_true(got.error().code == ECONNRESET || got.error().code == EPIPE);
        return;
    }
}

void still_works(const Job &job) {
    std::vector<std::int32_t> numbers(100, 1);
    std::vector<std::int32_t> others(100, 2);
    const auto sum = [](std::vector<std::int32_t> &of) {
        return protocol::CollectiveOperation{.kind = std::to_underlying(protocol::CollectiveKind::all_reduce),
                                             .type = 2,
                                             .count = of.size(),
                                             .input = std::bit_cast<std::uint64_t>(of.data()),
                                             .output = std::bit_cast<std::uint64_t>(of.data())};
    };
    Ranks ranks(job, 2, Placement::hosts);
    ranks.carry_out({{sum(numbers)}, {sum(others)}});
    assert_true(numbers == std::vector<std::int32_t>(100, 3));
}

void who_does_not_know_the_key_is_refused(void **) {
    const Job job;
    auto options = job.options();
    options.key = need(collectives::make_job_key());
    const auto engine = need(collectives::Engine::start(options));
    const auto member = need(engine->join({.key = {1, 1}, .rank = 0, .size = 1, .completed = 0}, {}));
    const auto state = member->wait(0, soon());
    assert_int_equal(std::to_underlying(state.phase), std::to_underlying(CommunicatorPhase::failed));
    expect_contains(state.failure.text, "does not know the job's key");
    // Nor does a proof for one purpose serve for another.
    auto socket = call(job.options().rendezvous);
    assert_false(prove_as_caller(socket, job.options().key, Purpose::peers, soon()).has_value());
    still_works(job);
}

void noise_is_refused(void **) {
    const Job job;
    std::mt19937_64 random(3);
    for (int round = 0; round < 50; ++round) {
        auto socket = call(job.options().rendezvous);
        std::vector<std::byte> bytes(1 + random() % 5000);
        for (auto &byte : bytes)
            byte = static_cast<std::byte>(random());
        // It may have hung up in the middle.
        static_cast<void>(socket.send(bytes, soon()));
        if (bytes.size() >= 48)
            expect_hang_up(socket);
    }
    still_works(job);
}

constexpr int kIdle = 200; // more than there are places

void idle_connections_keep_nobody_out(void **) {
    const Job job;
    std::vector<Socket> idle;
    for (int one = 0; one < kIdle; ++one)
        idle.push_back(call(job.options().rendezvous));
    still_works(job);
    expect_hang_up(idle.front()); // it had the place that another needed
}

// A process of the job that has gone mad.
void nonsense_at_the_rendezvous_ends_its_connection(void **) {
    const Job job;
    std::mt19937_64 random(4);
    for (int round = 0; round < 100; ++round) {
        auto socket = call(job.options().rendezvous);
        need(prove_as_caller(socket, job.options().key, Purpose::rendezvous, soon()));
        collectives::WordHead head{.word = static_cast<std::uint32_t>(random() % 8),
                                   .size = static_cast<std::uint32_t>(random() % 700)};
        if (round % 10 == 0)
            head.size = collectives::kMostWord + 1;
        if (round % 10 == 1) // joins without saying who it is
            head = {.word = std::to_underlying(collectives::Word::join),
                    .size = sizeof(collectives::JoinRequest)};
        std::vector<std::byte> bytes(head.size > collectives::kMostWord ? 0 : head.size);
        for (auto &byte : bytes)
            byte = static_cast<std::byte>(random());
        static_cast<void>(socket.send(std::as_bytes(std::span(&head, 1)), soon()));
        static_cast<void>(socket.send(bytes, soon()));
        const bool announces = head.word == std::to_underlying(collectives::Word::announce) &&
                               head.size == sizeof(collectives::ProcessInfo);
        const bool forgets = head.word == std::to_underlying(collectives::Word::forget) &&
                             head.size == sizeof(collectives::JoinRequest);
        if (!announces && !forgets)
            expect_hang_up(socket);
    }
    still_works(job);
}

// An honest rank 1 whose rank 0 is this test: it is called as a peer calls.
class Meeting {
  public:
    // idle: so many connect to the honest one before, and say nothing.
    explicit Meeting(const Job &job, int idle = 0) : engine_(job.engine("honest")) {
        rendezvous_ = call(job.options().rendezvous);
        need(prove_as_caller(rendezvous_, job.options().key, Purpose::rendezvous, soon()));
        collectives::ProcessInfo me{.id = {0, 1}}; // the lowest: it calls
        assert_true(collectives::put_text(me.host, "stranger"));
        need(send_word(rendezvous_, collectives::Word::announce, collectives::bytes_of_word(me), soon()));
        const collectives::JoinRequest join{.ticket = 1, .key = {9, 9}, .rank = 0, .size = 2};
        need(send_word(rendezvous_, collectives::Word::join, collectives::bytes_of_word(join), soon()));
        member = need(engine_->join({.key = {9, 9}, .rank = 1, .size = 2, .completed = 0}, {}));
        const auto word = need(receive_word(rendezvous_, soon()));
        assert_int_equal(std::to_underlying(word.word), std::to_underlying(collectives::Word::complete));
        collectives::CompleteReply reply;
        std::memcpy(&reply, word.bytes.data(), sizeof(reply));
        instance = reply.instance;
        for (std::uint32_t process = 0; process < reply.processes; ++process) {
            collectives::ProcessInfo info;
            std::memcpy(&info, word.bytes.data() + sizeof(reply) + reply.ranks * 4 + process * sizeof(info),
                        sizeof(info));
            if (info.id == me.id)
                continue;
            const std::string distant(collectives::text_in(info.distant));
            for (int one = 0; one < idle; ++one)
                idle_.push_back(call(distant));
            peer = call(distant);
            need(prove_as_caller(peer, job.options().key, Purpose::peers, soon()));
            need(peer.send(std::as_bytes(std::span(me.id)), soon()));
        }
        wait_until_known();
    }
    void say(const collectives::FrameHead &head, std::span<const std::byte> bytes = {}) {
        // It may have hung up already.
        static_cast<void>(peer.send(std::as_bytes(std::span(&head, 1)), soon()));
        static_cast<void>(peer.send(bytes, soon()));
    }
    void become_ready() {
        say({.kind = std::to_underlying(collectives::Kind::here), .instance = instance});
        assert_int_equal(std::to_underlying(member->wait(0, soon()).phase),
                         std::to_underlying(CommunicatorPhase::ready));
    }
    void expect_failed() {
        const auto state = member->wait(~std::uint64_t{0}, soon());
        assert_int_equal(std::to_underlying(state.phase), std::to_underlying(CommunicatorPhase::failed));
    }

    std::shared_ptr<collectives::Member> member;
    Socket peer;
    std::uint64_t instance = 0;

  private:
    // The honest one has been told, too. What is said before is kept (early.cpp), unless it is of no use.
    void wait_until_known() {
        for (collectives::FrameHead head;
             head.kind != std::to_underlying(collectives::Kind::here) || head.instance != instance;)
            need(peer.receive(std::as_writable_bytes(std::span(&head, 1)), soon()));
    }

    std::shared_ptr<collectives::Engine> engine_;
    Socket rendezvous_;
    std::vector<Socket> idle_;
};

void idle_connections_keep_no_peer_out(void **) {
    const Job job;
    Meeting meeting(job, kIdle);
    meeting.become_ready();
}

void nonsense_of_a_peer_ends_its_connection(void **) {
    const Job job;
    const auto shape = collectives::Shape::of(2);
    using collectives::FrameHead;
    using collectives::Kind;
    const auto kind = [](Kind of) { return std::to_underlying(of); };
    const std::vector<FrameHead> wrong{
        {.kind = 0},
        {.kind = kind(Kind::end)},
        {.kind = kind(Kind::area), .rank = 0}, // without a descriptor
        {.kind = kind(Kind::data), .rank = 0, .a = 0, .b = 8},
        {.kind = kind(Kind::data), .rank = 0, .a = shape.size - 8, .b = 16},
        {.kind = kind(Kind::data), .rank = 0, .a = ~std::uint64_t{0} - 4, .b = 16},
        {.kind = kind(Kind::data), .rank = 0, .a = shape.data_at, .b = ~std::uint64_t{0}},
        {.kind = kind(Kind::data), .rank = 1, .b = ~std::uint64_t{0}}, // the honest one's own
        {.kind = kind(Kind::count), .rank = 0, .a = shape.counters(), .b = 1},
        {.kind = kind(Kind::failed), .a = collectives::kMostReason + 1},
    };
    for (auto head : wrong) {
        Meeting meeting(job);
        meeting.become_ready();
        head.instance = meeting.instance;
        meeting.say(head);
        expect_hang_up(meeting.peer);
        meeting.expect_failed();
    }
    {
        Meeting meeting(job); // a counter that goes back
        meeting.become_ready();
        meeting.say({.kind = kind(Kind::count), .rank = 0, .instance = meeting.instance, .a = 0, .b = 9});
        meeting.say({.kind = kind(Kind::count), .rank = 0, .instance = meeting.instance, .a = 0, .b = 8});
        expect_hang_up(meeting.peer);
        meeting.expect_failed();
    }
    still_works(job);
}

void noise_of_a_peer_ends_its_connection(void **) {
    const Job job;
    std::mt19937_64 random(6);
    for (int round = 0; round < 40; ++round) {
        Meeting meeting(job);
        if (round % 2 == 0)
            meeting.become_ready();
        for (int frame = 0; frame < 20; ++frame) {
            std::vector<std::byte> bytes(random() % 600);
            for (auto &byte : bytes)
                byte = static_cast<std::byte>(random());
            meeting.say({.kind = static_cast<std::uint32_t>(random() % 8),
                         .rank = static_cast<std::uint32_t>(random() % 3),
                         .instance = random() % 2 == 0 ? meeting.instance : random(),
                         .a = random() % 2 == 0 ? random() % 8192 : random(),
                         .b = random() % 2 == 0 ? random() % 8192 : random()},
                        bytes);
        }
        meeting.peer.shut_down();
        meeting.expect_failed();
    }
    still_works(job);
}

} // namespace

int main() {
    singularity::log::set_level(singularity::log::Level::kError); // refusals are what is tested
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_does_not_know_the_key_is_refused),
        cmocka_unit_test(noise_is_refused),
        cmocka_unit_test(idle_connections_keep_nobody_out),
        cmocka_unit_test(idle_connections_keep_no_peer_out),
        cmocka_unit_test(nonsense_at_the_rendezvous_ends_its_connection),
        cmocka_unit_test(nonsense_of_a_peer_ends_its_connection),
        cmocka_unit_test(noise_of_a_peer_ends_its_connection),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
