// SPDX-License-Identifier: GPL-2.0-or-later
// The rendezvous tells one process after the other. What the first ones say, and that they fail or go, before
// the last one is told is not forgotten: nobody waits for who will not come.
#include "cmocka.hpp"
#include "common/log.hpp"
#include "frames.hpp"
#include "proof.hpp"
#include "ranks.hpp"
#include "socket.hpp"
#include "words.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include <sys/socket.h>

namespace {

using namespace singularity::test;
namespace collectives = singularity::collectives;
namespace protocol = singularity::protocol;
using collectives::FrameHead;
using collectives::Kind;
using collectives::ProcessInfo;
using collectives::Purpose;
using collectives::Socket;
using collectives::Word;
using protocol::CommunicatorPhase;

template <class T>
std::span<const std::byte> bytes_of(const T &value) {
    return std::as_bytes(std::span(&value, 1));
}

constexpr std::uint64_t kInstance = 1000; // of the communicator with key {0, 0}, the others' follow

// One honest process, and this test: it is the rendezvous, and the process of all other ranks.
class Scene {
  public:
    Scene() {
        auto listener =
            need(collectives::ListeningSocket::open({.unix_socket = true, .host = "@", .port = {}}));
        key_ = need(collectives::make_job_key());
        engine = need(collectives::Engine::start({.rendezvous = listener.address().text(),
                                                  .host = "honest",
                                                  .address = "tcp:127.0.0.1:0",
                                                  .key = key_}));
        // A member that nobody else joins: the process comes with its first one.
        static_cast<void>(join(999));
        singularity::Expected<Socket> came;
        need(singularity::wait_until([&] { return (came = listener.accept()).has_value(); }, soon(),
                                     "the process to come"));
        line_ = std::move(*came);
        need(prove_as_listener(line_, key_, Purpose::rendezvous, soon()));
        const auto word = need(receive_word(line_, soon()));
        const auto info = collectives::word_as<ProcessInfo>(word, Word::announce);
        assert_true(info.has_value());
        honest_ = *info;
    }

    // Rank 1 of two.
    std::shared_ptr<collectives::Member> join(std::uint64_t number) {
        return need(engine->join({.key = {number, 0}, .rank = 1, .size = 2, .completed = 0}, {}));
    }
    // The process is told that rank 0 is that one's.
    void tell(std::uint64_t number, const ProcessInfo &other) {
        const collectives::CompleteReply reply{
            .instance = kInstance + number, .key = {number, 0}, .ranks = 2, .processes = 2};
        const std::array<std::uint32_t, 2> owners{0, 1};
        std::vector<std::byte> bytes;
        for (const auto part : {bytes_of(reply), bytes_of(owners), bytes_of(other), bytes_of(honest_)})
            bytes.insert(bytes.end(), part.begin(), part.end());
        need(send_word(line_, Word::complete, bytes, soon()));
    }
    // What the rendezvous has said is done in order: all of it is done when this has been.
    void wait_until_told() {
        const auto member = join(998);
        std::uint64_t ticket = 0;
        while (ticket == 0) {
            const auto word = need(receive_word(line_, soon()));
            if (const auto request = collectives::word_as<collectives::JoinRequest>(word, Word::join);
                request && request->key == member->place().key)
                ticket = request->ticket;
        }
        const collectives::RefusedReply refusal{.ticket = ticket};
        need(send_word(line_, Word::refused, bytes_of(refusal), soon()));
        expect_failed(*member, "");
    }
    // Calls as that process.
    Socket call_as(const ProcessInfo &other) {
        const bool near = collectives::text_in(other.host) == collectives::text_in(honest_.host);
        const std::string address(near ? collectives::text_in(honest_.beside)
                                       : collectives::text_in(honest_.distant));
        auto peer = need(Socket::connect(need(collectives::Address::parse(address)), soon()));
        need(prove_as_caller(peer, key_, Purpose::peers, soon()));
        need(peer.send(std::as_bytes(std::span(other.id)), soon()));
        return peer;
    }
    static void expect_failed(collectives::Member &member, std::string_view why) {
        const auto state = member.wait(~std::uint64_t{0}, soon());
        assert_int_equal(std::to_underlying(state.phase), std::to_underlying(CommunicatorPhase::failed));
        expect_contains(state.failure.text, why);
    }

    std::shared_ptr<collectives::Engine> engine;

  private:
    collectives::JobKey key_{};
    Socket line_;
    ProcessInfo honest_;
};

ProcessInfo process_on(std::string_view host, const collectives::ProcessId &id) {
    ProcessInfo info{.id = id};
    assert_true(collectives::put_text(info.host, host));
    return info;
}
// Ids below all that are made by chance, and above: who is called, and who calls.
constexpr collectives::ProcessId kCaller{0, 1};
constexpr collectives::ProcessId kCalled{~std::uint64_t{0}, ~std::uint64_t{0}};

void say(Socket &peer, Kind kind, std::uint64_t number, std::string_view text = {}) {
    const FrameHead head{.kind = std::to_underlying(kind), .instance = kInstance + number, .a = text.size()};
    need(peer.send(bytes_of(head), soon()));
    need(peer.send(std::as_bytes(std::span(text)), soon()));
}

// Returns when the other side has heard all, and has hung up in turn.
void hang_up(Socket &peer) {
    assert_int_equal(shutdown(peer.fd(), SHUT_WR), 0);
    std::array<std::byte, 1> any{};
    while (peer.receive(any, soon()))
        ;
}

void who_has_come_and_gone_is_lost(void **) {
    for (const char *host : {"honest", "another"}) {
        Scene scene;
        const auto other = process_on(host, kCaller);
        const auto member = scene.join(1);
        auto peer = scene.call_as(other);
        say(peer, Kind::here, 1);
        hang_up(peer);
        scene.tell(1, other);
        Scene::expect_failed(*member, "that has its rank is lost");
        // Of the next one nothing has been said: the process comes again.
        const auto next = scene.join(2);
        scene.tell(2, other);
        auto again = scene.call_as(other);
        say(again, Kind::failed, 2, "has come again");
        Scene::expect_failed(*next, "has come again");
    }
}

void what_has_failed_elsewhere_fails_here(void **) {
    Scene scene;
    const auto other = process_on("another", kCaller);
    const auto first = scene.join(1);
    const auto second = scene.join(2);
    auto peer = scene.call_as(other);
    scene.tell(1, other);
    scene.wait_until_told();
    say(peer, Kind::failed, 2, "no memory there");
    say(peer, Kind::failed, 1, "behind the other");
    Scene::expect_failed(*first, "behind the other");
    scene.tell(2, other);
    Scene::expect_failed(*second, "no memory there");
}

// As above, from the other side.
void who_comes_later_is_told_what_has_failed(void **) {
    Scene scene;
    const auto other = process_on("another", kCaller);
    const auto member = scene.join(1);
    scene.engine->forget(*member);
    scene.tell(1, other);
    scene.wait_until_told();
    auto peer = scene.call_as(other);
    FrameHead head{.kind = std::to_underlying(Kind::alive)};
    while (head.kind == std::to_underlying(Kind::alive))
        need(peer.receive(std::as_writable_bytes(std::span(&head, 1)), soon()));
    assert_int_equal(head.kind, std::to_underlying(Kind::failed));
    assert_int_equal(head.instance, kInstance + 1);
    std::string text(head.a, '\0');
    need(peer.receive(std::as_writable_bytes(std::span(text)), soon()));
    expect_contains(text, "a rank has left before all had come");
}

// A communicator may begin at the moment when a call for another one has failed.
void who_cannot_be_reached_is_called_for_each(void **) {
    constexpr std::uint64_t kTimes = 200;
    Scene scene;
    const auto other = process_on("another", kCalled);
    std::vector<std::shared_ptr<collectives::Member>> members;
    members.reserve(kTimes);
    for (std::uint64_t number = 0; number < kTimes; ++number)
        members.push_back(scene.join(number));
    for (std::uint64_t number = 0; number < kTimes; ++number) {
        scene.tell(number, other);
        Scene::expect_failed(*members[number], "it was given no address for other hosts");
    }
}

} // namespace

int main() {
    singularity::log::set_level(singularity::log::Level::kError); // refusals are what is tested
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_has_come_and_gone_is_lost),
        cmocka_unit_test(what_has_failed_elsewhere_fails_here),
        cmocka_unit_test(who_comes_later_is_told_what_has_failed),
        cmocka_unit_test(who_cannot_be_reached_is_called_for_each),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
