// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/barrier/messages.hpp"

#include "cmocka.hpp"

#include <random>

namespace {

using namespace singularity;
using barrier::Kind;
using barrier::Report;
using barrier::Request;

Request some_request() {
    return {
        .action = Request::Action::hold,
        .barrier = 11,
        .round = 3,
        .step = true,
        .targets = {{.line = {.communicator = {.words = {1, 2}}, .rank = 4, .peer = 5, .kind = Kind::send},
                     .number = 6}}};
}

Report some_report() {
    return {.process = {.words = {8, 9}},
            .barrier = 11,
            .round = 3,
            .settled = true,
            .held = true,
            .pid = 17,
            .members = {{.communicator = {.words = {1, 2}}, .rank = 4, .size = 8}},
            .issued = {{.line = {.communicator = {.words = {1, 2}}, .rank = 4}, .number = 6}},
            .doing = "ncclAllReduce"};
}

void what_is_written_is_read(void ** /*state*/) {
    const auto request = barrier::decode_request(barrier::encode(some_request()));
    assert_true(request.has_value());
    assert_true(*request == some_request());
    const auto report = barrier::decode_report(barrier::encode(some_report()));
    assert_true(report.has_value());
    assert_true(*report == some_report());
}

void every_shorter_and_longer_message_is_refused(void ** /*state*/) {
    const auto bytes = barrier::encode(some_report());
    for (std::size_t size = 0; size < bytes.size(); ++size)
        assert_false(barrier::decode_report(std::span(bytes).first(size)).has_value());
    auto longer = bytes;
    longer.push_back({});
    assert_false(barrier::decode_report(longer).has_value());
    const auto request = barrier::encode(some_request());
    for (std::size_t size = 0; size < request.size(); ++size)
        assert_false(barrier::decode_request(std::span(request).first(size)).has_value());
}

// Under the sanitizers: nothing is read that is not there, nothing allocated that nobody has sent.
void any_bytes_are_read_or_refused(void ** /*state*/) {
    std::mt19937 chance(1);
    const auto good = barrier::encode(some_report());
    unsigned read = 0;
    for (int input = 0; input < 20000; ++input) {
        auto bytes = good;
        for (unsigned changes = 1 + chance() % 4; changes > 0; --changes)
            bytes[chance() % bytes.size()] = static_cast<std::byte>(chance());
        if (const auto report = barrier::decode_report(bytes)) {
            ++read;
            assert_true(report->members.size() <= 1 && report->issued.size() <= 1);
            for (const char character : report->doing)
                assert_true(character >= ' ' && character <= '~');
        }
    }
    assert_true(read > 0 && read < 20000);
}

void text_is_cut_and_made_printable(void ** /*state*/) {
    auto report = some_report();
    report.doing = "\x1b[2J" + std::string(1000, 'x');
    const auto read = barrier::decode_report(barrier::encode(report));
    assert_true(read.has_value());
    assert_int_equal(read->doing.size(), 256);
    assert_string_equal(read->doing.substr(0, 5).c_str(), "?[2Jx");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_shorter_and_longer_message_is_refused),
        cmocka_unit_test(any_bytes_are_read_or_refused),
        cmocka_unit_test(text_is_cut_and_made_printable),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
