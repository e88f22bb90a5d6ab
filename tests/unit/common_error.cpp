// SPDX-License-Identifier: GPL-2.0-or-later
#include "cmocka.hpp"
#include "common/error.hpp"

#include <cerrno>

namespace {

using namespace singularity;
using test::expect_equal;

void message_is_a_sentence(void ** /*state*/) {
    expect_equal(Error("read", "/etc/x", "it is a directory", 0).message(),
                 "cannot read /etc/x: it is a directory");
    expect_equal(Error("start a thread", "", "out of memory", 0).message(),
                 "cannot start a thread: out of memory");
}

void message_is_one_line(void ** /*state*/) {
    expect_equal(Error("read", "/tmp/a\nb", "\x1b[31m", 0).message(), "cannot read /tmp/a\\nb: \\x1b[31m");
}

void errno_error_has_code_and_text(void ** /*state*/) {
    errno = ENOSPC;
    const Error error = errno_error("write", "/srv/store");
    assert_int_equal(error.code, ENOSPC);
    expect_equal(error.message(), "cannot write /srv/store: No space left on device");
    assert_int_equal(errno_error("write", "x", EACCES).code, EACCES);
}

Expected<int> inner(bool works) {
    if (works)
        return 7;
    return failure("count", "sheep", "they have gone", ENOENT);
}

Expected<double> outer(bool works) {
    auto number = inner(works);
    if (!number)
        return propagate(number);
    return *number + 0.5;
}

void propagate_changes_type_and_keeps_the_error(void ** /*state*/) {
    assert_true(outer(true) == 7.5);
    const auto failed = outer(false);
    assert_false(failed.has_value());
    expect_equal(failed.error().message(), "cannot count sheep: they have gone");
    assert_int_equal(failed.error().code, ENOENT);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(message_is_a_sentence),
        cmocka_unit_test(message_is_one_line),
        cmocka_unit_test(errno_error_has_code_and_text),
        cmocka_unit_test(propagate_changes_type_and_keeps_the_error),
    };
    return cmocka_run_group_tests_name("common_error", tests, nullptr, nullptr);
}
