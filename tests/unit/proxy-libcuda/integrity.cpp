// SPDX-License-Identifier: GPL-2.0-or-later
// The digest that cudart checks: known answers of the algorithm, and what goes into the message.
#include "integrity.hpp"

#include "cmocka.hpp"

#include <string>
#include <string_view>

#include <fmt/format.h>

using namespace singularity::libcuda;
using singularity::test::expect_equal;

namespace {

std::string hex(const Digest &digest) {
    std::string out;
    for (const auto value : digest)
        out += fmt::format("{:02x}", std::to_integer<unsigned>(value));
    return out;
}

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

// RFC 1319, appendix A.5.
void md2_known_answers(void ** /*state*/) {
    expect_equal(hex(md2(bytes(""))), "8350e5a3e24c153df2275c9f80692773");
    expect_equal(hex(md2(bytes("a"))), "32ec01ec4a6dac72c0ab96fb34c0b5d1");
    expect_equal(hex(md2(bytes("abc"))), "da853b0d3f88d99b30283a69e6ded6bb");
    expect_equal(hex(md2(bytes("message digest"))), "ab4f496bfb2a530b219ff33031fe06b0");
    expect_equal(
        hex(md2(bytes("12345678901234567890123456789012345678901234567890123456789012345678901234567890"))),
        "d5976f79d83d3a0dc9806c3c66f3efd8");
}

// The definition, written out with the key's pads.
void hmac_is_two_digests(void ** /*state*/) {
    Digest key{};
    key[0] = std::byte{7};
    std::string inner(16, '\x36');
    std::string outer(16, '\x5c');
    inner[0] ^= 7;
    outer[0] ^= 7;
    const auto first = md2(bytes(inner + "what is signed"));
    for (const auto value : first)
        outer += static_cast<char>(value);
    expect_equal(hex(hmac_md2(key, bytes("what is signed"))), hex(md2(bytes(outer))));
}

IntegrityQuestion question() {
    return {.driver_version = 13000,
            .version = 13002,
            .process = 1,
            .thread = 2,
            .cudart_table = 3,
            .integrity_table = 4,
            .integrity_function = 5,
            .unix_seconds = 6,
            .devices = {{.uuid = {}, .pci_domain = 0, .pci_bus = 1, .pci_device = 2}}};
}

void first_versions_are_constants(void ** /*state*/) {
    auto asked = question();
    asked.version = 13000;
    const auto first = integrity_answer(asked);
    assert_int_equal(first[0], 0x3341181C03CB675C);
    asked.version = 13001;
    asked.process = 99;
    const auto second = integrity_answer(asked);
    assert_int_equal(second[0], 0x1841181C03CB675C);
    assert_int_equal(second[1], first[1]);
}

void everything_counts(void ** /*state*/) {
    const auto base = integrity_answer(question());
    const auto differs = [&](auto change) {
        auto asked = question();
        change(asked);
        assert_true(integrity_answer(asked) != base);
    };
    differs([](auto &asked) { asked.driver_version = 12090; });
    differs([](auto &asked) { asked.version = 13003; });
    differs([](auto &asked) { asked.process = 7; });
    differs([](auto &asked) { asked.thread = 7; });
    differs([](auto &asked) { asked.cudart_table = 7; });
    differs([](auto &asked) { asked.integrity_table = 7; });
    differs([](auto &asked) { asked.integrity_function = 7; });
    differs([](auto &asked) { asked.unix_seconds = 7; });
    differs([](auto &asked) { asked.devices[0].uuid[15] = std::byte{1}; });
    differs([](auto &asked) { std::swap(asked.devices[0].pci_bus, asked.devices[0].pci_device); });
    differs([](auto &asked) { asked.devices.clear(); });
    assert_true(integrity_answer(question()) == base);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(md2_known_answers), cmocka_unit_test(hmac_is_two_digests),
                                cmocka_unit_test(first_versions_are_constants),
                                cmocka_unit_test(everything_counts)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
