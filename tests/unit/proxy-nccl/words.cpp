// SPDX-License-Identifier: GPL-2.0-or-later
// What is decided without any communicator: configurations, keys, texts.
#include "cmocka.hpp"
#include "config.hpp"
#include "data_types.hpp"
#include "keys.hpp"
#include "outcome.hpp"

#include <cstdlib>
#include <cstring>
#include <string>

using namespace singularity::nccl;
using singularity::test::expect_contains;
using singularity::test::expect_equal;

namespace {

void a_config_is_blocking_unless_it_says_otherwise(void ** /*state*/) {
    assert_true(settings_of(nullptr)->blocking);
    Config config;
    assert_true(settings_of(&config)->blocking);
    config.blocking = 0;
    config.comm_name = "gradients";
    const auto settings = settings_of(&config);
    assert_true(settings.has_value());
    assert_false(settings->blocking);
    expect_equal(settings->name, "gradients");
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    assert_true(settings_of(&config)->blocking);
    assert_true(inherited(*settings).blocking);
    unsetenv("NCCL_COMM_BLOCKING");
    assert_false(inherited(*settings).blocking);
}

void a_config_of_wrong_values_is_refused(void ** /*state*/) {
    struct Wrong {
        int Config::*member;
        int value;
        const char *name;
    };
    for (const auto &[member, value, name] :
         std::initializer_list<Wrong>{{&Config::blocking, 2, "blocking"},
                                      {&Config::cga_cluster_size, -1, "cgaClusterSize"},
                                      {&Config::min_ctas, 0, "min/max channels"},
                                      {&Config::max_ctas, -3, "min/max channels"},
                                      {&Config::split_share, 2, "splitShare"},
                                      {&Config::collnet_enable, -1, "collnetEnable"},
                                      {&Config::cta_policy, 4, "policy"},
                                      {&Config::shrink_share, 7, "shrinkShare"},
                                      {&Config::nvls_ctas, 0, "nvlsCTAs"},
                                      {&Config::channels_per_net_peer, 65, "nChannelsPerNetPeer"},
                                      {&Config::nvlink_centric_sched, 2, "nvlinkCentricSched"}}) {
        Config config;
        config.*member = value;
        const auto settings = settings_of(&config);
        assert_false(settings.has_value());
        assert_true(settings.error() == Result::invalid_argument);
        expect_contains(last_error(), std::string("Invalid config ") + name);
    }
    Config config;
    config.min_ctas = 9;
    config.max_ctas = 8;
    assert_false(settings_of(&config).has_value());
    config = Config{};
    config.magic = 1;
    assert_false(settings_of(&config).has_value());
    expect_contains(last_error(), "NCCL_CONFIG_INITIALIZER");
}

void what_an_older_config_does_not_have_is_not_read(void ** /*state*/) {
    Config config;
    config.version = 21400;
    config.size = offsetof(Config, cga_cluster_size);
    config.blocking = 0;
    config.nvlink_centric_sched = 99;
    config.comm_name = std::bit_cast<const char *>(std::uintptr_t{0x10});
    const auto settings = settings_of(&config);
    assert_true(settings.has_value());
    assert_false(settings->blocking);
    expect_equal(settings->name, "");
    // The version counts even where the struct is longer.
    config.size = sizeof(Config);
    assert_true(settings_of(&config).has_value());
    config.size = 8;
    assert_false(settings_of(&config).has_value());
}

void unique_ids_are_unique_and_known(void ** /*state*/) {
    const auto first = new_unique_id().value();
    const auto second = new_unique_id().value();
    assert_true(std::memcmp(&first, &second, sizeof(first)) != 0);
    assert_true(key_of(std::span(&first, 1)).value() == key_of(std::span(&first, 1)).value());
    assert_true(key_of(std::span(&first, 1)).value() != key_of(std::span(&second, 1)).value());
    const std::array both{first, second};
    const std::array turned{second, first};
    assert_true(key_of(both).value() != key_of(turned).value());
    assert_true(key_of(both).value() != key_of(std::span(&first, 1)).value());
}

void foreign_unique_ids_are_refused(void ** /*state*/) {
    UniqueId id{};
    assert_true(key_of(std::span(&id, 1)).error() == Result::invalid_argument);
    id = new_unique_id().value();
    id.internal[0] ^= 1;
    assert_true(key_of(std::span(&id, 1)).error() == Result::invalid_argument);
    id = new_unique_id().value();
    id.internal[127] = 1;
    assert_true(key_of(std::span(&id, 1)).error() == Result::invalid_argument);
    expect_contains(last_error(), "ncclGetUniqueId");
}

void the_environment_can_name_the_id(void ** /*state*/) {
    setenv("NCCL_COMM_ID", "127.0.0.1:4711", 1);
    const auto first = new_unique_id().value();
    const auto second = new_unique_id().value();
    setenv("NCCL_COMM_ID", "127.0.0.1:4712", 1);
    const auto other = new_unique_id().value();
    unsetenv("NCCL_COMM_ID");
    assert_memory_equal(&first, &second, sizeof(first));
    assert_true(std::memcmp(&first, &other, sizeof(first)) != 0);
}

void keys_of_children_depend_on_all_that_makes_them(void ** /*state*/) {
    const Key parent{1, 2};
    const std::array<int, 2> excluded{1, 3};
    const std::array<int, 1> fewer{1};
    const std::array keys{key_of_split(parent, 1, 0),
                          key_of_split(parent, 2, 0),
                          key_of_split(parent, 1, 1),
                          key_of_split({1, 3}, 1, 0),
                          key_of_shrink(parent, 1, excluded),
                          key_of_shrink(parent, 2, excluded),
                          key_of_shrink(parent, 1, fewer),
                          key_behind_revoked(parent, 1),
                          key_behind_revoked(parent, 2),
                          key_of_grow(parent, 1),
                          key_of_grow(parent, 2),
                          parent};
    for (std::size_t one = 0; one < keys.size(); ++one)
        for (std::size_t other = 0; other < one; ++other)
            assert_true(keys.at(one) != keys.at(other));
}

void results_have_nccls_texts(void ** /*state*/) {
    expect_equal(text_of(Result::success), "no error");
    expect_equal(text_of(Result::remote_error), "remote process exited or there was a network error");
    expect_equal(text_of(Result::in_progress), "NCCL operation in progress");
    expect_equal(text_of(static_cast<Result>(8)), "unknown result code");
    expect_equal(text_of(static_cast<Result>(-1)), "unknown result code");
}

void the_last_error_stays_readable(void ** /*state*/) {
    note("the first");
    const char *const first = last_error();
    expect_equal(first, "the first");
    note(std::string(5000, 'x'));
    assert_int_equal(std::strlen(last_error()), 1023);
    expect_equal(first, "the first");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_config_is_blocking_unless_it_says_otherwise),
        cmocka_unit_test(a_config_of_wrong_values_is_refused),
        cmocka_unit_test(what_an_older_config_does_not_have_is_not_read),
        cmocka_unit_test(unique_ids_are_unique_and_known),
        cmocka_unit_test(foreign_unique_ids_are_refused),
        cmocka_unit_test(the_environment_can_name_the_id),
        cmocka_unit_test(keys_of_children_depend_on_all_that_makes_them),
        cmocka_unit_test(results_have_nccls_texts),
        cmocka_unit_test(the_last_error_stays_readable),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
