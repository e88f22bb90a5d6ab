// SPDX-License-Identifier: GPL-2.0-or-later
// Asking other programs.
#include "cmocka.hpp"
#include "common/program_output.hpp"

#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;
using singularity::answer_of;
using singularity::Deadline;
using singularity::output_of;
using singularity::test::expect_contains;
using singularity::test::expect_equal;

constexpr auto kPatience = 20s;
int next_read_error = 0;

singularity::Expected<std::string> shell(const char *script) {
    return answer_of({"sh", "-c", script}, Deadline::after(kPatience));
}

void what_it_writes_is_returned(void **) {
    const auto output =
        output_of({"sh", "-c", "echo out; echo err >&2; cat; exit 3"}, Deadline::after(kPatience));
    assert_true(output.has_value());
    expect_equal(output->out, "out\n");
    expect_equal(output->err, "err\n");
    assert_true(WIFEXITED(output->status));
    assert_int_equal(WEXITSTATUS(output->status), 3);
    // More than a pipe holds, of both at once.
    const auto much = output_of({"sh", "-c", "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero"},
                                Deadline::after(kPatience));
    assert_true(much.has_value());
    assert_int_equal(much->out.size(), 300000);
    assert_int_equal(much->err.size(), 300000);
}

void a_bad_end_is_an_error_with_its_words(void **) {
    expect_equal(shell("echo fine; echo noise >&2").value_or(""), "fine\n");
    expect_contains(shell("echo out; echo 'no way' >&2; exit 4").error().message(), "no way (exit 4)");
    expect_contains(shell("echo 'only out'; exit 4").error().message(), "only out (exit 4)");
    expect_contains(shell("kill -9 $$").error().message(), "it ended with signal 9");
    assert_int_equal(answer_of({"/nonexistent/program"}, Deadline::after(kPatience)).error().code, ENOENT);
}

void who_does_not_end_is_killed(void **) {
    for (const char *script : {"exec sleep 600", "exec >&- 2>&-; exec sleep 600"}) {
        const auto late = answer_of({"sh", "-c", script}, Deadline::after(100ms));
        assert_false(late.has_value());
        assert_int_equal(late.error().code, ETIMEDOUT);
        expect_contains(late.error().message(), "sleep 600");
        assert_int_equal(waitpid(-1, nullptr, 0), -1); // nobody is left
        assert_int_equal(errno, ECHILD);
    }
}

void endless_output_is_refused(void **) {
    const auto endless = answer_of({"cat", "/dev/zero"}, Deadline::after(kPatience));
    assert_false(endless.has_value());
    assert_int_equal(endless.error().code, EFBIG);
}

// A pipe that cannot be read has not come to its end.
void a_failing_read_is_an_error(void **) {
    for (const int passing : {EINTR, EAGAIN}) {
        next_read_error = passing;
        expect_equal(shell("echo fine").value_or(""), "fine\n");
        assert_int_equal(next_read_error, 0);
    }
    next_read_error = EIO;
    const auto failed = shell("echo lost; exec sleep 600");
    assert_false(failed.has_value());
    assert_int_equal(failed.error().code, EIO);
    expect_contains(failed.error().message(), "cannot read the output of sh -c echo lost");
    assert_int_equal(waitpid(-1, nullptr, 0), -1); // nobody is left
    assert_int_equal(errno, ECHILD);
}

} // namespace

// The linker gives read(2) of the code under test to __wrap_read (--wrap).
extern "C" ssize_t __real_read(int file, void *into, size_t size);
extern "C" ssize_t __wrap_read(int file, void *into, size_t size) {
    if (next_read_error == 0)
        return __real_read(file, into, size);
    errno = std::exchange(next_read_error, 0);
    return -1;
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(what_it_writes_is_returned), cmocka_unit_test(a_bad_end_is_an_error_with_its_words),
        cmocka_unit_test(who_does_not_end_is_killed), cmocka_unit_test(endless_output_is_refused),
        cmocka_unit_test(a_failing_read_is_an_error),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
