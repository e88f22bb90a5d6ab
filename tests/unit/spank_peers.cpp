// SPDX-License-Identifier: GPL-2.0-or-later
// What agents believe of each other: frames and sealed messages, by themselves and when somebody has been at
// them. Whole conversations are in tests/peers.
#include "cmocka.hpp"
#include "peers/frames.hpp"
#include "peers/handshake.hpp"
#include "peers/session.hpp"

#include <random>
#include <string>
#include <vector>

namespace {

using namespace singularity::peers;

Agreement agreement() {
    return {.caller_nonce = std::string(kNonceSize, 'a'),
            .called_nonce = std::string(kNonceSize, 'b'),
            .caller_key = std::string(kKeySize, 'c'),
            .called_key = std::string(kKeySize, 'd')};
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

void test_sealed_messages(void ** /*state*/) {
    const auto key = key_of(agreement(), true);
    assert_true(key.has_value());
    Sealer sealer(*key);
    Opener opener(*key);
    for (const char *text : {"first", "", "third"}) {
        const auto sealed = sealer.seal(text);
        assert_true(sealed.has_value());
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

void test_every_bit_of_a_sealed_message_counts(void ** /*state*/) {
    const auto key = key_of(agreement(), true);
    Sealer sealer(*key);
    const auto sealed = sealer.seal("pay");
    for (std::size_t bit = 0; bit < sealed->size() * 8; ++bit) {
        std::string changed = *sealed;
        changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
        assert_false(Opener(*key).open(changed).has_value());
    }
    for (std::size_t size = 0; size < sealed->size(); ++size)
        assert_false(Opener(*key).open(std::string_view(*sealed).substr(0, size)).has_value());
    assert_false(Opener(*key).open(*sealed + "x").has_value());
    assert_true(Opener(*key).open(*sealed).has_value());
}

void test_each_direction_and_connection_has_its_key(void ** /*state*/) {
    const auto key = key_of(agreement(), true);
    const auto sealed = Sealer(*key).seal("text");
    assert_false(Opener(*key_of(agreement(), false)).open(*sealed).has_value());
    for (std::string Agreement::*part : {&Agreement::caller_nonce, &Agreement::called_nonce,
                                         &Agreement::caller_key, &Agreement::called_key}) {
        auto other = agreement();
        (other.*part)[7] ^= 1;
        assert_false(Opener(*key_of(other, true)).open(*sealed).has_value());
    }
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
        cmocka_unit_test(test_sealed_messages),
        cmocka_unit_test(test_every_bit_of_a_sealed_message_counts),
        cmocka_unit_test(test_each_direction_and_connection_has_its_key),
        cmocka_unit_test(test_garbage_is_no_handshake),
        cmocka_unit_test(test_a_handshake_for_another_host_is_refused),
        cmocka_unit_test(test_host_names),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
