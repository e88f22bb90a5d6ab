// SPDX-License-Identifier: GPL-2.0-or-later
#include "cmocka.hpp"
#include "common/proc.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace {

using namespace singularity;

void mounts_have_all_columns(void ** /*state*/) {
    const auto mounts = proc::mounts("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - ext3 "
                                     "/dev/root rw,errors=continue\n"
                                     "37 35 0:5 / /a\\134b rw - tmpfs tmpfs rw\n");
    assert_int_equal(mounts.size(), 2);
    assert_int_equal(mounts[0].id, 36);
    assert_true(mounts[0].device == makedev(98, 0));
    assert_string_equal(mounts[0].root.c_str(), "/mnt1");
    assert_string_equal(mounts[0].point.c_str(), "/mnt 2");
    assert_string_equal(mounts[0].type.c_str(), "ext3");
    assert_string_equal(mounts[0].source.c_str(), "/dev/root");
    assert_string_equal(mounts[0].options.c_str(), "rw,errors=continue");
    assert_string_equal(mounts[1].point.c_str(), "/a\\b");
}

void lines_that_are_no_mounts_are_left_out(void ** /*state*/) {
    for (const char *text :
         {"", "\n", " - \n", "36 35 98:0 / /a rw", "36 35 98:0 - ext3 a\n", "x 35 98:0 / /a rw - ext3 a\n",
          "36 35 98 / /a rw - ext3 a\n", "36 35 98:x / /a rw - ext3 a\n"})
        assert_true(proc::mounts(text).empty());
    const auto torn = proc::mounts("36 35 98:0 / /a\\04 rw - ext3 a\n");
    assert_int_equal(torn.size(), 1);
    assert_string_equal(torn[0].point.c_str(), "/a\\04");
}

void root_of_this_process_is_found(void ** /*state*/) {
    const auto text = proc::read("/proc/self/mountinfo");
    assert_true(text.has_value());
    struct statx about{};
    assert_int_equal(statx(AT_FDCWD, "/proc", 0, STATX_MNT_ID, &about), 0);
    std::size_t found = 0;
    for (const auto &mount : proc::mounts(*text))
        if (mount.id == about.stx_mnt_id) {
            ++found;
            assert_string_equal(mount.point.c_str(), "/proc");
            assert_string_equal(mount.type.c_str(), "proc");
        }
    assert_int_equal(found, 1);
}

void stat_columns_follow_any_name(void ** /*state*/) {
    const auto columns = proc::stat_columns("7 (a) S (b) ) R 1 2 3\n");
    assert_int_equal(columns.size(), 4);
    assert_true(columns[0] == "R" && columns[3] == "3");
    assert_true(proc::stat_columns("").empty());
    assert_true(proc::stat_columns("7 (").empty());
}

void status_lines_by_label(void ** /*state*/) {
    constexpr const char *kStatus = "Name:\ta: b\nPid:\t7\nTracerPid:\t0\nPidx:\t9\n";
    assert_true(proc::status_line(kStatus, "Name") == "a: b");
    assert_true(proc::status_line(kStatus, "Pid") == "7");
    assert_true(proc::status_line(kStatus, "Pi").empty());
    assert_true(proc::status_line("", "Pid").empty());
}

void what_is_not_there_is_an_error(void ** /*state*/) {
    const auto text = proc::read("/proc/self/no-such-file");
    assert_false(text.has_value());
    assert_int_equal(text.error().code, ENOENT);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(mounts_have_all_columns),
        cmocka_unit_test(lines_that_are_no_mounts_are_left_out),
        cmocka_unit_test(root_of_this_process_is_found),
        cmocka_unit_test(stat_columns_follow_any_name),
        cmocka_unit_test(status_lines_by_label),
        cmocka_unit_test(what_is_not_there_is_an_error),
    };
    return cmocka_run_group_tests_name("common_proc", tests, nullptr, nullptr);
}
