// SPDX-License-Identifier: GPL-2.0-or-later
// network.outside as text.
#include "cmocka.hpp"
#include "common/outside.hpp"

#include <string>

namespace {

using namespace singularity;

constexpr std::uint32_t ip(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    return a << 24 | b << 16 | c << 8 | d;
}

void test_words(void ** /*state*/) {
    assert_true(parse_outside("everything") == (Outside{.everywhere = true, .only = {}}));
    assert_true(parse_outside("nothing") == Outside{});
    assert_true(parse_outside("everything")->open());
    assert_false(parse_outside("nothing")->open());
}

void test_targets(void ** /*state*/) {
    const auto found = parse_outside("10.0.0.0/8,  192.0.2.7:443 ,0.0.0.0/0:53,192.0.2.128/25");
    assert_true(found == (Outside{.everywhere = false,
                                  .only = {{.address = ip(10, 0, 0, 0), .prefix = 8, .port = 0},
                                           {.address = ip(192, 0, 2, 7), .prefix = 32, .port = 443},
                                           {.address = 0, .prefix = 0, .port = 53},
                                           {.address = ip(192, 0, 2, 128), .prefix = 25, .port = 0}}}));
    assert_true(found->open());
    assert_false(found->open_to_ipv6());
    const auto both = parse_outside("2001:db8::/32, [2001:db8:1::7]:443,[fd00::/8]:53,::/0,10.0.0.1");
    const auto ipv6 = [](std::uint64_t high, std::uint64_t low, std::uint32_t prefix, std::uint16_t port) {
        return OutsideTarget{
            .address = 0, .prefix = prefix, .port = port, .ipv6 = true, .high = high, .low = low};
    };
    assert_true(both == (Outside{.everywhere = false,
                                 .only = {ipv6(0x20010db800000000, 0, 32, 0),
                                          ipv6(0x20010db800010000, 7, 128, 443),
                                          ipv6(0xfd00000000000000, 0, 8, 53),
                                          ipv6(0, 0, 0, 0),
                                          {.address = ip(10, 0, 0, 1), .prefix = 32, .port = 0}}}));
    assert_true(both->open_to_ipv6());
    std::string many = "10.0.0.1";
    for (std::size_t i = 1; i < kOutsideTargets; ++i)
        many += ",10.0.0.1";
    assert_true(parse_outside(many)->only.size() == kOutsideTargets);
    assert_false(parse_outside(many + ",10.0.0.1").has_value());
}

void test_what_is_none(void ** /*state*/) {
    for (const char *const text : {"",
                                   ",",
                                   " ",
                                   "all",
                                   "Everything",
                                   "everything,nothing",
                                   "10.0.0.1,",
                                   "10.0.0.1,,10.0.0.2",
                                   "10.0.0.1/8",
                                   "10.0.0.0/33",
                                   "10.0.0.0/-1",
                                   "10.0.0.0/",
                                   "10.0.0.0/8/8",
                                   "10.0.0.1:",
                                   "10.0.0.1:0",
                                   "10.0.0.1:65536",
                                   "10.0.0.1:http",
                                   "10.0.0.1:1:2",
                                   "10.0.0",
                                   "10.0.0.256",
                                   "example.org",
                                   "::1",
                                   "::ffff:10.0.0.1",
                                   "::ffff:0:0/96",
                                   "2001:db8::1/64",
                                   "2001:db8:0:0:1::/64",
                                   "2001:db8:0:1::/63",
                                   "2001:db8::3/127",
                                   "2001:db8::/129",
                                   "[2001:db8::1]",
                                   "[2001:db8::1]:0",
                                   "[2001:db8::1]:443 ]",
                                   "[10.0.0.1]:443",
                                   "[2001:db8::1",
                                   "2001:db8::1:",
                                   "[]:443",
                                   "10.0.0.1 10.0.0.2",
                                   "10.0.0.1:80/32"})
        assert_string_equal(parse_outside(text) ? text : "refused", "refused");
    assert_false(settings::value_of(settings::OutsideText{}, {.text = "here", .quoted = false}).has_value());
    assert_true(settings::value_of(settings::OutsideText{}, {.text = "nothing", .quoted = false}) ==
                "nothing");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_what_is_none),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
