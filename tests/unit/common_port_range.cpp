// SPDX-License-Identifier: GPL-2.0-or-later
// network.publish as text.
#include "cmocka.hpp"
#include "common/port_range.hpp"

namespace {

using namespace singularity;

void test_ranges(void ** /*state*/) {
    assert_true(parse_port_range("nothing") == PortRange{});
    assert_false(parse_port_range("nothing")->any());
    assert_false(parse_port_range("nothing")->has(0));
    const auto range = parse_port_range("20000-20999");
    assert_true(range == (PortRange{.first = 20000, .last = 20999}));
    assert_true(range->any());
    assert_true(range->has(20000) && range->has(20999));
    assert_false(range->has(19999) || range->has(21000) || range->has(0));
    assert_true(parse_port_range("1024-65535").has_value());
    assert_true(parse_port_range("2000-2000").has_value());
}

void test_what_is_none(void ** /*state*/) {
    for (const char *const text :
         {"", "everything", "20000", "20000-", "-20999", "20999-20000", "1023-2000", "0-2000", "2000-65536",
          "20000-20999,30000-30001", "2000 - 3000", "a-b", "+2000-3000"})
        assert_string_equal(parse_port_range(text) ? text : "refused", "refused");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(test_ranges), cmocka_unit_test(test_what_is_none)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
