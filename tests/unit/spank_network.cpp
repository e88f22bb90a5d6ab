// SPDX-License-Identifier: GPL-2.0-or-later
// Numbers in jobs' networks. The networks themselves are in tests/network.
#include "cmocka.hpp"
#include "network/plan.hpp"

#include <set>

namespace {

using namespace singularity::network;

constexpr std::uint32_t kHost = 10U << 24 | 1;

void test_addresses_are_of_the_network(void ** /*state*/) {
    assert_int_equal(address_of(0x000001, 1), 10U << 24 | 64U << 16 | 1U << 8 | 1);
    assert_int_equal(address_of(0xffffff, 254), 10U << 24 | 127U << 16 | 255U << 8 | 254);
    assert_true((mac_of(0x123456, 7) == Mac{0x02, 0x53, 0x12, 0x34, 0x56, 7}));
    std::set<Mac> macs;
    for (const std::uint32_t vni : {1U, 256U, 65536U, kVniLimit - 1})
        for (std::uint32_t node = 1; node <= kNodeLimit; ++node)
            macs.insert(mac_of(vni, node));
    assert_int_equal(macs.size(), 4 * kNodeLimit);
    // The gateway is nobody else.
    assert_true(kGateway > kNodeLimit && !macs.contains(kGatewayMac));
    assert_int_equal(network_of(0x000001) | kGateway, address_of(0x000001, kGateway));
}

void test_plans_that_are_none(void ** /*state*/) {
    const Prepare good{.vni = 1, .port = 1, .local = kHost, .hosts = {kHost + 1, kHost + 2}};
    assert_true(check(good).has_value());
    assert_true(check(Prepare{.vni = 1, .port = 1, .local = 0, .hosts = {}}).has_value());
    const auto refused = [&](auto change) {
        auto plan = good;
        change(plan);
        return !check(plan).has_value();
    };
    assert_true(refused([](Prepare &plan) { plan.vni = 0; }));
    assert_true(refused([](Prepare &plan) { plan.vni = kVniLimit; }));
    assert_true(refused([](Prepare &plan) { plan.port = 0; }));
    assert_true(refused([](Prepare &plan) { plan.local = 0; }));
    assert_true(refused([](Prepare &plan) { plan.hosts[1] = kHost + 1; }));
    assert_true(refused([](Prepare &plan) { plan.hosts[1] = kHost; }));
    assert_true(refused([](Prepare &plan) { plan.hosts[1] = 224U << 24; }));
    assert_true(refused([](Prepare &plan) { plan.hosts.assign(255, kHost + 9); }));
    assert_true(refused([](Prepare &plan) { plan.way_out.outside.only = {{.address = 0, .prefix = 33}}; }));
    assert_true(
        refused([](Prepare &plan) { plan.way_out.outside.only.resize(singularity::kOutsideTargets + 1); }));
}

void test_nodes_must_be_on_hosts_of_the_network(void ** /*state*/) {
    const Prepare before{.vni = 1, .port = 1, .local = kHost, .hosts = {kHost + 1}};
    assert_true(check(Connect{.mtu = 1450, .remotes = {{1, kHost + 1}, {2, kHost + 1}}}, before).has_value());
    for (const auto &bad :
         {Connect{.mtu = kLeastMtu - 1, .remotes = {}}, Connect{.mtu = kMostMtu + 1, .remotes = {}},
          Connect{.mtu = 1450, .remotes = {{0, kHost + 1}}},
          Connect{.mtu = 1450, .remotes = {{kGateway, kHost + 1}}},
          Connect{.mtu = 1450, .remotes = {{1, kHost + 1}, {1, kHost + 1}}},
          Connect{.mtu = 1450, .remotes = {{1, kHost}}}})
        assert_false(check(bad, before).has_value());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses_are_of_the_network),
        cmocka_unit_test(test_plans_that_are_none),
        cmocka_unit_test(test_nodes_must_be_on_hosts_of_the_network),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
