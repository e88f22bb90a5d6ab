// SPDX-License-Identifier: GPL-2.0-or-later
// CUDA_VISIBLE_DEVICES over the sockets that are configured.
#include "sockets.hpp"

#include "cmocka.hpp"

#include <cstdlib>

using namespace singularity;
using namespace singularity::client;

namespace {

using Devices = std::vector<std::size_t>;

std::array<std::uint8_t, 16> uuid_of(std::size_t device) {
    std::array<std::uint8_t, 16> uuid{};
    uuid[0] = static_cast<std::uint8_t>(0xA0 + device);
    uuid[15] = 0x42;
    return uuid;
}

Devices chosen(const char *text) { return choose_visible(text, 4, uuid_of); }

void all_are_visible_by_default(void ** /*state*/) { assert_true(chosen(nullptr) == (Devices{0, 1, 2, 3})); }

void indices_choose_and_order(void ** /*state*/) {
    assert_true(chosen("2") == Devices{2});
    assert_true(chosen("3,0") == (Devices{3, 0}));
    assert_true(chosen(" 1 , 2 ") == (Devices{1, 2}));
}

void the_list_ends_at_what_is_not_valid(void ** /*state*/) {
    assert_true(chosen("").empty());
    assert_true(chosen("-1").empty());
    assert_true(chosen("1,-1,2") == Devices{1});
    assert_true(chosen("1,4,2") == Devices{1});
    assert_true(chosen("1,1,2") == Devices{1});
    assert_true(chosen("0,x") == Devices{0});
    assert_true(chosen("NoDevFiles").empty());
}

void uuids_choose(void ** /*state*/) {
    assert_true(chosen("GPU-a2000000-0000-0000-0000-000000000042") == Devices{2});
    assert_true(chosen("GPU-A3") == Devices{3});
    assert_true(chosen("GPU-a1,GPU-a0") == (Devices{1, 0}));
    assert_true(chosen("GPU-ff").empty());
}

void sockets_are_separated_by_colons(void ** /*state*/) {
    setenv("SINGULARITY_PROXY_SOCKETS", "/run/a:/run/b:", 1);
    const auto sockets = configured_sockets();
    assert_true(sockets.has_value());
    assert_true(*sockets == (std::vector<std::string>{"/run/a", "/run/b"}));
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    const auto visible = visible_devices(configured_sockets());
    assert_true(visible.has_value() && visible->size() == 1);
    assert_string_equal(visible->front().socket.c_str(), "/run/b");
    assert_int_equal(visible->front().device.number, 1);
    assert_int_equal(visible->front().device.of, 2);
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("SINGULARITY_PROXY_SOCKETS");
    const auto none = configured_sockets();
    assert_false(none.has_value());
    test::expect_contains(none.error().message(), "SINGULARITY_PROXY_SOCKETS is not set");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(all_are_visible_by_default),         cmocka_unit_test(indices_choose_and_order),
        cmocka_unit_test(the_list_ends_at_what_is_not_valid), cmocka_unit_test(uuids_choose),
        cmocka_unit_test(sockets_are_separated_by_colons),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
