// SPDX-License-Identifier: GPL-2.0-or-later
// --singularity-publish: what it takes, and that a refusal names the value and the fix.
#include "cmocka.hpp"
#include "network/plan.hpp"
#include "publish_option.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace {

using singularity::spank::kMostPublished;
using singularity::spank::parse_published_ports;
using singularity::test::expect_contains;
using singularity::test::fail;

using Ports = std::vector<std::uint16_t>;

static_assert(kMostPublished == singularity::network::kPublishedLimit);

void takes_ports(void ** /*state*/) {
    assert_true(parse_published_ports("6006").value() == Ports{6006});
    assert_true(parse_published_ports("8888,22,65535,1").value() == (Ports{8888, 22, 65535, 1}));
}

std::string refusal_of(std::string_view text) {
    const auto ports = parse_published_ports(text);
    if (ports)
        fail(fmt::format("'{}' is taken", text));
    return ports.error().message();
}

void refuses_what_is_no_port(void ** /*state*/) {
    for (const std::string_view text :
         {"", "0", "70000", "65536", "-1", "+1", "6006,", ",6006", "6006,,8888", "6006, 8888", "http",
          "6006/udp", "6006:6006", "6006-6010", "0x17", "6006 "}) {
        expect_contains(refusal_of(text),
                        fmt::format("accept --singularity-publish{}{}: ", text.empty() ? "" : " ", text));
        expect_contains(refusal_of(text), "give numbers from 1 to 65535, with commas between several, e.g. "
                                          "--singularity-publish=6006,8888");
    }
    expect_contains(refusal_of("6006,70000"), "'70000' is no TCP port");
}

void refuses_too_much(void ** /*state*/) {
    expect_contains(refusal_of("6006,8888,6006"), "6006 is there twice: give each port once");
    std::string many = "1";
    for (std::size_t port = 2; port <= kMostPublished; ++port)
        many += fmt::format(",{}", port);
    const auto otherwise = parse_published_ports("http", "--publish");
    assert_true(!otherwise &&
                otherwise.error().message().starts_with("cannot accept --publish http: 'http'") &&
                otherwise.error().message().ends_with("e.g. --publish=6006,8888"));
    assert_int_equal(parse_published_ports(many).value().size(), kMostPublished);
    expect_contains(refusal_of(many + ",100"), "it has more than 16 ports");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(takes_ports),
        cmocka_unit_test(refuses_what_is_no_port),
        cmocka_unit_test(refuses_too_much),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
