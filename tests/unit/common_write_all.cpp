// SPDX-License-Identifier: GPL-2.0-or-later
// All of it is written, or the error is told.
#include "cmocka.hpp"
#include "common/unique_fd.hpp"
#include "common/write_all.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

using namespace singularity;
using test::expect_contains;

void in_pieces_and_interrupted(void ** /*state*/) {
    std::array<int, 2> ends{};
    assert_int_equal(pipe2(ends.data(), O_CLOEXEC), 0);
    const UniqueFd reading(ends[0]);
    UniqueFd writing(ends[1]);
    std::string data(1 << 20, 'x'); // more than a pipe holds
    for (std::size_t at = 0; at < data.size(); ++at)
        data[at] = static_cast<char>('a' + at % 23);
    struct sigaction act{};
    act.sa_handler = [](int /*number*/) {}; // without SA_RESTART
    struct sigaction before{};
    assert_int_equal(sigaction(SIGALRM, &act, &before), 0);
    std::string got;
    std::thread reader([&] {
        sigset_t alarm;
        sigemptyset(&alarm);
        sigaddset(&alarm, SIGALRM);
        pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
        std::array<char, 1000> part{};
        for (ssize_t size = 0; (size = read(reading.get(), part.data(), part.size())) > 0;)
            got.append(part.data(), static_cast<std::size_t>(size));
    });
    const itimerval often{.it_interval = {.tv_sec = 0, .tv_usec = 200},
                          .it_value = {.tv_sec = 0, .tv_usec = 200}};
    assert_int_equal(setitimer(ITIMER_REAL, &often, nullptr), 0);
    const auto written = write_all(writing.get(), data, "a pipe");
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    writing.reset();
    reader.join();
    sigaction(SIGALRM, &before, nullptr);
    assert_true(written.has_value());
    assert_true(got == data);
}

void a_full_disk_is_told(void ** /*state*/) {
    const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
    const auto written = write_all(full.get(), "something", "/dev/full");
    assert_false(written.has_value());
    assert_int_equal(written.error().code, ENOSPC);
    expect_contains(written.error().message(), "/dev/full");
    assert_true(write_all(full.get(), "", "/dev/full").has_value());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(in_pieces_and_interrupted),
        cmocka_unit_test(a_full_disk_is_told),
    };
    return cmocka_run_group_tests_name("common_write_all", tests, nullptr, nullptr);
}
