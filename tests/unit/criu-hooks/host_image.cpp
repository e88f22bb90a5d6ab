// SPDX-License-Identifier: GPL-2.0-or-later
// The parts of host images that need no CRIU: the wire format of its images, and what its log says.
#include "cmocka.hpp"
#include "log.hpp"
#include "wire.hpp"

#include <cstdint>
#include <random>
#include <span>
#include <string>

namespace {

using namespace singularity;
using host::Bytes;

Bytes bytes(const std::string &text) { return std::as_bytes(std::span(text)); }

void test_fields(void **) {
    // 1: 150, 2: "abc", 3: fixed32 1, 4: packed {1, 300}, 4 again: 7
    const std::string message("\x08\x96\x01\x12\x03"
                              "abc\x1d\x01\x00\x00\x00\x22\x03\x01\xac\x02\x20\x07",
                              20);
    const auto fields = host::fields_of(bytes(message));
    assert_true(fields.has_value());
    assert_int_equal(fields->size(), 5);
    assert_int_equal(host::find(*fields, 1)->value, 150);
    test::expect_equal(host::find(*fields, 2)->text(), "abc");
    assert_int_equal(host::find(*fields, 3)->value, 1);
    const auto numbers = host::repeated(*fields, 4);
    assert_true(numbers.has_value() && *numbers == std::vector<std::uint64_t>({1, 300, 7}));
    assert_null(host::find(*fields, 5));
}

void test_replaced(void **) {
    const std::string message("\x08\x96\x01\x12\x03"
                              "abc",
                              8);
    const auto fields = host::fields_of(bytes(message));
    assert_true(fields.has_value());
    const std::string number = host::with_number(bytes(message), *host::find(*fields, 1), 70000);
    const std::string text = host::with_bytes(bytes(number), host::fields_of(bytes(number))->at(1), "longer");
    const auto changed = host::fields_of(bytes(text));
    assert_true(changed.has_value());
    assert_int_equal(host::find(*changed, 1)->value, 70000);
    test::expect_equal(host::find(*changed, 2)->text(), "longer");
}

void test_malformed(void **) {
    for (const std::string &message :
         {std::string("\x08"), std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
          std::string("\x12\x05"
                      "abc"),
          std::string("\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), std::string("\x1d\x01"),
          std::string("\x0b"), std::string("\x00\x00", 2)})
        assert_false(host::fields_of(bytes(message)).has_value());
}

void test_random_bytes(void **) {
    std::mt19937 chance(7); // NOLINT(cert-msc51-cpp): the same bytes every time
    for (int round = 0; round < 20000; ++round) {
        std::string message(chance() % 64, '\0');
        for (char &each : message)
            each = static_cast<char>(chance());
        const auto fields = host::fields_of(bytes(message));
        if (!fields)
            continue;
        for (const host::Field &each : *fields)
            assert_true(each.begin < each.end && each.end <= message.size());
    }
}

void test_log(void **) {
    const std::string why = host::explain(
        "(00.1) Dumping\n"
        "(00.2) Error (criu/rlimit.c:20): rlimit: Can't setup RLIMIT_NOFILE for self\n"
        "(00.3)     27: Error (criu/files-reg.c:2175): File a\x1b[31m has bad size 5 (expect 4)\n"
        "(00.4) Error (criu/cr-dump.c:1975): Dumping FAILED.\n");
    test::expect_contains(why, "process 27 of the node: File a");
    test::expect_contains(why, "has bad size 5 (expect 4)");
    test::expect_contains(why, "restore an older checkpoint");
    assert_false(why.contains('\x1b') || why.contains("RLIMIT_NOFILE") || why.contains("FAILED"));
    test::expect_equal(host::explain("all is well\n"), "");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(test_fields), cmocka_unit_test(test_replaced),
                                cmocka_unit_test(test_malformed), cmocka_unit_test(test_random_bytes),
                                cmocka_unit_test(test_log)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
