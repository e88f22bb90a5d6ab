// SPDX-License-Identifier: GPL-2.0-or-later
// Bytes on their way between a program and our own streams.
#include "cmocka.hpp"
#include "streams/relay.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace {

using singularity::UniqueFd;
using singularity::spank::Pump;
using singularity::test::expect_equal;

struct Between {
    UniqueFd written; // by the program
    UniqueFd shown;   // to who reads here
    Pump pump;
};

std::pair<UniqueFd, UniqueFd> make_pipe() {
    std::array<int, 2> ends{};
    assert_int_equal(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Between between() {
    auto [from, written] = make_pipe();
    auto [shown, to] = make_pipe();
    return {.written = std::move(written),
            .shown = std::move(shown),
            .pump = Pump(std::move(from), std::move(to))};
}

void put(const Between &one, std::string_view text) {
    assert_int_equal(write(one.written.get(), text.data(), text.size()), text.size());
}

std::string shown(Between &one) {
    std::string out;
    std::array<char, 4096> piece{};
    for (int turn = 0; turn < 1000 && !one.pump.idle(); ++turn) {
        one.pump.work();
        for (ssize_t got = 0; (got = read(one.shown.get(), piece.data(), piece.size())) > 0;)
            out.append(piece.data(), static_cast<std::size_t>(got));
    }
    assert_true(one.pump.idle());
    return out;
}

void who_writes_without_end_is_not_waited_for(void **) {
    auto one = between();
    put(one, "before");
    one.pump.read_no_more_than_there_is();
    put(one, "after");
    expect_equal(shown(one), "before");
    std::vector<pollfd> watched;
    one.pump.watch(watched);
    assert_int_equal(watched.size(), 1); // whoever polls does not wake up for what is not read
}

void all_that_is_there_comes(void **) {
    auto one = between();
    const std::string before(60000, 'b');
    put(one, "first");
    one.pump.work(); // some of it has been read, and is on its way
    put(one, before);
    one.pump.read_no_more_than_there_is();
    put(one, "after");
    expect_equal(shown(one), "first" + before);
}

void where_nothing_is_there_nothing_comes(void **) {
    auto one = between();
    one.pump.read_no_more_than_there_is();
    assert_true(one.pump.idle());
    put(one, "after");
    assert_true(one.pump.idle());
    expect_equal(shown(one), "");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(who_writes_without_end_is_not_waited_for),
        cmocka_unit_test(all_that_is_there_comes),
        cmocka_unit_test(where_nothing_is_there_nothing_comes),
    };
    return cmocka_run_group_tests_name("streams", tests, nullptr, nullptr);
}
