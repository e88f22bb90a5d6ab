// SPDX-License-Identifier: GPL-2.0-or-later
// What agents believe of each other: frames and encrypted messages, by themselves and when somebody has been
// at them. Whole conversations are in tests/peers.
#include "cmocka.hpp"
#include "peers/connection.hpp"
#include "peers/exchange.hpp"
#include "peers/frames.hpp"
#include "peers/handshake.hpp"
#include "peers/peer_messages.pb.h"
#include "peers/session.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/socket.h>

namespace {

using namespace singularity::peers;

SessionKey key_of(char filled_with) {
    SessionKey out;
    std::ranges::fill(out.bytes(), static_cast<std::uint8_t>(filled_with));
    return out;
}

bool same(const SessionKey &one, const SessionKey &other) {
    return std::ranges::equal(one.bytes(), other.bytes());
}

void test_frames_come_in_any_pieces(void ** /*state*/) {
    const std::string text = framed("one") + framed(std::string(5000, 'x')) + framed(std::string("\0z", 2));
    for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{4096}, text.size()}) {
        FrameReader reader(8192);
        std::vector<std::string> got;
        for (std::size_t at = 0; at < text.size(); at += piece) {
            reader.add(std::string_view(text).substr(at, piece));
            for (;;) {
                auto frame = reader.next();
                assert_true(frame.has_value());
                if (!*frame)
                    break;
                got.push_back(**frame);
            }
        }
        assert_int_equal(got.size(), 3);
        assert_true(got[0] == "one" && got[1] == std::string(5000, 'x') && got[2] == std::string("\0z", 2));
    }
}

void test_frames_of_wrong_length_are_refused(void ** /*state*/) {
    for (const std::string_view head : {std::string_view("\0\0\0\0", 4), std::string_view("\0\0\x20\x01", 4),
                                        std::string_view("\xff\xff\xff\xff", 4)}) {
        FrameReader reader(8192);
        reader.add(head);
        assert_false(reader.next().has_value());
    }
    FrameReader reader(8192);
    reader.add(std::string_view("\0\0\x20\0", 4));
    assert_true(reader.next().has_value());
    assert_int_equal(reader.room(), 8192);
}

void test_encrypted_messages(void ** /*state*/) {
    const auto key = key_of('k');
    Sealer sealer(key);
    Opener opener(key);
    for (const std::string &text : {std::string("first"), std::string(), std::string(kMessageLimit, 'x')}) {
        const auto sealed = sealer.seal(text);
        assert_true(sealed.has_value());
        assert_int_equal(sealed->size(), text.size() + kSealedLimitOver);
        assert_true(text.empty() || sealed->find(text) == std::string::npos);
        const auto opened = opener.open(*sealed);
        assert_true(opened.has_value());
        assert_true(*opened == text);
        assert_int_equal(opener.open(*sealed).error().code, EBADMSG); // again
    }
    const auto skipped = sealer.seal("fourth");
    const auto fifth = sealer.seal("fifth");
    assert_false(opener.open(*fifth).has_value());
    assert_true(opener.open(*skipped).has_value());
}

// AES-256-GCM with a nonce of zeros, and its test vectors: McGrew and Viega, "The Galois/Counter Mode of
// Operation", test cases 13 and 14.
void test_the_cipher_is_what_it_is_said_to_be(void ** /*state*/) {
    const auto zeros = key_of(0);
    assert_true(*Sealer(zeros).seal("") == std::string("\x53\x0f\x8a\xfb\xc7\x45\x36\xb9"
                                                       "\xa9\x63\xb4\xf1\xc4\xcb\x73\x8b"));
    assert_true(*Sealer(zeros).seal(std::string(16, '\0')) ==
                std::string("\xce\xa7\x40\x3d\x4d\x60\x6b\x6e\x07\x4e\xc5\xd3\xba\xf3\x9d\x18"
                            "\xd0\xd1\xc8\xa7\x99\x99\x6b\xf0\x26\x5b\x98\xb5\xd4\x8a\xb9\x19"));
}

void test_no_two_messages_look_the_same(void ** /*state*/) {
    Sealer sealer(key_of('k'));
    const auto first = sealer.seal("the same");
    const auto second = sealer.seal("the same");
    assert_true(first.has_value() && second.has_value() && *first != *second);
}

void test_every_bit_of_an_encrypted_message_counts(void ** /*state*/) {
    const auto key = key_of('k');
    Sealer sealer(key);
    const auto sealed = sealer.seal("pay");
    for (std::size_t bit = 0; bit < sealed->size() * 8; ++bit) {
        std::string changed = *sealed;
        changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
        assert_int_equal(Opener(key).open(changed).error().code, EBADMSG);
    }
    for (std::size_t size = 0; size < sealed->size(); ++size)
        assert_int_equal(Opener(key).open(std::string_view(*sealed).substr(0, size)).error().code, EBADMSG);
    assert_false(Opener(key).open(*sealed + "x").has_value());
    assert_true(Opener(key).open(*sealed).has_value());
}

void test_a_message_is_believed_from_its_sender_alone(void ** /*state*/) {
    const auto caller = Exchange::begin();
    const auto called = Exchange::begin();
    const auto ours = caller->keys(called->share(), "what was said");
    const auto theirs = called->keys(caller->share(), "what was said");
    assert_true(ours.has_value() && theirs.has_value());
    const auto sealed = Sealer(ours->from_caller).seal("text");
    assert_true(Opener(theirs->from_caller).open(*sealed).has_value());
    assert_int_equal(Opener(ours->from_called).open(*sealed).error().code, EBADMSG); // sent back to it
}

void test_each_direction_and_connection_has_its_key(void ** /*state*/) {
    const auto caller = Exchange::begin();
    const auto called = Exchange::begin();
    const auto third = Exchange::begin();
    assert_true(caller.has_value() && called.has_value() && third.has_value());
    assert_true(caller->share() != called->share());
    const auto keys = caller->keys(called->share(), "what was said");
    const auto theirs = called->keys(caller->share(), "what was said");
    assert_true(same(keys->from_caller, theirs->from_caller) && same(keys->from_called, theirs->from_called));
    assert_false(same(keys->from_caller, keys->from_called));
    // Whoever has heard something else has other keys, and so has whoever stands between the two.
    for (const auto &other :
         {called->keys(caller->share(), "what was salt"), called->keys(third->share(), "what was said"),
          third->keys(caller->share(), "what was said")}) {
        assert_true(other.has_value());
        assert_false(same(keys->from_caller, other->from_caller));
        assert_false(same(keys->from_called, other->from_called));
    }
}

void test_shares_of_which_no_key_can_be_made(void ** /*state*/) {
    const auto exchange = Exchange::begin();
    for (const std::string &share : {std::string(), std::string(kShareSize - 1, 'x'),
                                     std::string(kShareSize + 1, 'x'), std::string(kShareSize, '\0')})
        assert_int_equal(exchange->keys(share, "").error().code, EBADMSG);
}

// Whatever comes, a side that was called says no or waits; it never believes, and never holds much.
void test_garbage_is_no_handshake(void ** /*state*/) {
    std::mt19937 random(4711);
    const auto honest = Handshake::call({.own = "caller", .peer = "called"}, "/nowhere");
    assert_true(honest.has_value());
    auto output = Handshake::call({.own = "caller", .peer = "called"}, "/nowhere")->output();
    for (int round = 0; round < 20000; ++round) {
        auto called = Handshake::answer("called", "/nowhere");
        std::string frame = round % 2 == 0 ? output.substr(4) : std::string();
        for (auto left = random() % 64; frame.empty() || left > 0; left -= left > 0 ? 1 : 0)
            frame += static_cast<char>(random());
        for (auto changes = random() % 4; changes > 0; --changes)
            frame[random() % frame.size()] = static_cast<char>(random());
        if (called->take(frame))
            assert_false(called->done());
    }
}

void test_a_handshake_for_another_host_is_refused(void ** /*state*/) {
    auto caller = Handshake::call({.own = "a", .peer = "b"}, "/nowhere");
    const auto hello = caller->output().substr(4);
    auto other = Handshake::answer("c", "/nowhere");
    assert_int_equal(other->take(hello).error().code, EHOSTUNREACH);
    auto called = Handshake::answer("b", "/nowhere");
    assert_true(called->take(hello).has_value());
    assert_true(called->peer() == "a");
    // Somebody else answers.
    auto third = Handshake::answer("b", "/nowhere");
    auto to_third = Handshake::call({.own = "z", .peer = "b"}, "/nowhere");
    assert_true(third->take(to_third->output().substr(4)).has_value());
    assert_int_equal(caller->take(third->output().substr(4)).error().code, EHOSTUNREACH);
}

wire::Hello hello_in(const std::string &output) {
    wire::Hello out;
    assert_true(out.ParseFromString(output.substr(4)));
    return out;
}

// Both sides can say which of the two hosts is to be upgraded.
void test_another_version_is_named(void ** /*state*/) {
    for (const auto &[version, older] : {std::pair<std::uint32_t, const char *>{1, "on 'other'"},
                                         std::pair<std::uint32_t, const char *>{9, "on here"}}) {
        auto hello = hello_in(Handshake::call({.own = "other", .peer = "here"}, "/nowhere")->output());
        assert_int_equal(hello.version(), kProtocolVersion);
        hello.set_version(version);
        auto called = Handshake::answer("here", "/nowhere");
        auto caller = Handshake::call({.own = "here", .peer = "other"}, "/nowhere");
        for (auto *side : {&*called, &*caller}) {
            const auto taken = side->take(hello.SerializeAsString());
            assert_int_equal(taken.error().code, EPROTONOSUPPORT);
            const auto text = taken.error().message();
            for (const auto &part : {fmt::format("'other' speaks version {} ", version),
                                     fmt::format("here speaks version {}: ", kProtocolVersion),
                                     fmt::format("upgrade slurm-singularity {}", older)})
                assert_true(text.find(part) != std::string::npos);
            assert_true(side->listens() && !side->done());
        }
        assert_int_equal(hello_in(called->output()).version(), kProtocolVersion);
    }
}

// An agent of version 1 hangs up on a caller of another version.
void test_who_is_hung_up_on_before_the_end_of_the_handshake_is_told_where_to_look(void ** /*state*/) {
    std::array<int, 2> ends{};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    singularity::UniqueFd own(ends.front());
    singularity::UniqueFd other(ends.back());
    Connection connection(std::move(own), {.address = 0x0a000002, .port = 8474},
                          *Handshake::call({.own = "here", .peer = "other"}, "/nowhere"));
    assert_true(connection.handle().has_value());
    other.reset();
    const auto handled = connection.handle();
    assert_int_equal(handled.error().code, ECONNRESET);
    assert_true(handled.error().message().find("its agent's log says why") != std::string::npos);
}

void test_host_names(void ** /*state*/) {
    assert_true(short_name("n1.cluster.example") == "n1" && short_name("n1") == "n1");
    assert_true(is_host_name("node-01_a"));
    for (const auto &bad : {std::string(), std::string("a.b"), std::string("a b"), std::string("a\n"),
                            std::string(65, 'a'), std::string("\xc3\xa4")})
        assert_false(is_host_name(bad));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_come_in_any_pieces),
        cmocka_unit_test(test_frames_of_wrong_length_are_refused),
        cmocka_unit_test(test_encrypted_messages),
        cmocka_unit_test(test_the_cipher_is_what_it_is_said_to_be),
        cmocka_unit_test(test_no_two_messages_look_the_same),
        cmocka_unit_test(test_every_bit_of_an_encrypted_message_counts),
        cmocka_unit_test(test_a_message_is_believed_from_its_sender_alone),
        cmocka_unit_test(test_each_direction_and_connection_has_its_key),
        cmocka_unit_test(test_shares_of_which_no_key_can_be_made),
        cmocka_unit_test(test_garbage_is_no_handshake),
        cmocka_unit_test(test_a_handshake_for_another_host_is_refused),
        cmocka_unit_test(test_another_version_is_named),
        cmocka_unit_test(test_who_is_hung_up_on_before_the_end_of_the_handshake_is_told_where_to_look),
        cmocka_unit_test(test_host_names),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
