// SPDX-License-Identifier: GPL-2.0-or-later
// Numbers in jobs' networks. The networks themselves are in tests/network.
#include "cmocka.hpp"
#include "common/node_address.hpp"
#include "network/name_relay.hpp"
#include "network/name_stream.hpp"
#include "network/plan.hpp"

#include <array>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

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

void test_ipv6_addresses_go_with_those_of_ipv4(void ** /*state*/) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const auto node = singularity::ipv6_of(address_of(0x000b0b, 253));
    assert_string_equal(inet_ntop(AF_INET6, &node, text.data(), text.size()), "fd53:696e:6775::a4b:bfd");
    in6_addr all{};
    assert_int_equal(
        inet_pton(AF_INET6, std::string(singularity::kNodeAddresses, std::strlen("fd53:696e:6775::")).c_str(),
                  &all),
        1);
    assert_memory_equal(&all, &node, singularity::kNodePrefix / 8);
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
    assert_true(refused([](Prepare &plan) {
        plan.way_out.outside.only = {
            {.address = 0, .prefix = 129, .port = 0, .ipv6 = true, .high = 0, .low = 0}};
    }));
    assert_true(
        refused([](Prepare &plan) { plan.way_out.outside.only.resize(singularity::kOutsideTargets + 1); }));
}

void test_ports_that_are_published(void ** /*state*/) {
    const Publish good{
        .node = 1, .ports = {6006, 8888}, .range = {.first = 20000, .last = 20999}, .owner = {}};
    assert_true(check(good).has_value());
    const auto refused = [&](auto change) {
        auto plan = good;
        change(plan);
        return !check(plan).has_value();
    };
    assert_true(refused([](Publish &plan) { plan.ports.clear(); }));
    assert_true(refused([](Publish &plan) { plan.ports.push_back(6006); }));
    assert_true(refused([](Publish &plan) { plan.ports.push_back(0); }));
    assert_true(refused([](Publish &plan) {
        for (std::uint16_t port = 1; plan.ports.size() <= kPublishedLimit; ++port)
            plan.ports.push_back(port);
    }));
    assert_true(refused([](Publish &plan) { plan.range = {}; }));
    assert_true(refused([](Publish &plan) { plan.range.first = 1023; }));
    assert_true(refused([](Publish &plan) { plan.range.last = 19999; }));
    // The same each time, and spread over all of the range.
    std::set<std::uint16_t> seen;
    for (std::uint32_t vni = 1; vni <= 200; ++vni)
        for (const std::uint32_t node : {1U, 2U})
            for (const std::uint16_t port : good.ports) {
                const auto found = first_choice(good.range, address_of(vni, node), port);
                assert_true(good.range.has(found));
                seen.insert(found);
            }
    assert_true(seen.size() > 400); // of 800 in 1000
    assert_int_equal(first_choice({.first = 65535, .last = 65535}, kHost, 6006), 65535);
    assert_true(first_choice({.first = 1024, .last = 65535}, UINT32_MAX, 65535) >= 1024);
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

constexpr std::uint32_t kStub = 127U << 24 | 53; // 127.0.0.53

void test_name_servers_at_the_loopback(void ** /*state*/) {
    using Servers = std::vector<std::uint32_t>;
    const auto reads = [](const char *text, const Servers &servers) {
        assert_true(loopback_servers(text) == servers);
    };
    reads("", {});
    reads("nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n", {kStub});
    reads("# nameserver 127.0.0.1\n;nameserver 127.0.0.1\nnameserver\t127.0.0.53 # ours\r\n", {kStub});
    reads("nameserver 10.0.0.1\nnameserver 127.0.0.53", {kStub}); // without a last newline
    reads("nameserver 127.0.0.53\nnameserver 127.0.0.53\n", {kStub});
    reads("nameserver ::1\nnameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 127.0.0.53\n", {});
    reads("nameserver\nnameservers 127.0.0.53\n nameserver 127.0.0.53\nnameserver x\n", {});

    const auto only = [](std::vector<singularity::OutsideTarget> targets) {
        return allowed_servers({kStub}, {.everywhere = false, .only = std::move(targets)});
    };
    assert_true(allowed_servers({kStub}, {.everywhere = true, .only = {}}) == Servers{kStub});
    assert_true(only({}).empty());
    assert_true(only({{.address = 10U << 24, .prefix = 8, .port = 0}}).empty());
    assert_true(only({{.address = kStub, .prefix = 32, .port = 443}}).empty());
    assert_true(only({{.address = kStub, .prefix = 32, .port = 53}}) == Servers{kStub});
    assert_true(only({{.address = 127U << 24, .prefix = 8, .port = 0}}) == Servers{kStub});
    assert_true(only({{.address = 0, .prefix = 0, .port = 0}}) == Servers{kStub});
}

struct Streamed {
    singularity::UniqueFd program;
    singularity::UniqueFd server;
    NameStream stream;
    static Streamed make() {
        std::array<int, 2> node{};
        std::array<int, 2> host{};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, node.data()), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, host.data()), 0);
        return {.program = singularity::UniqueFd(node[0]),
                .server = singularity::UniqueFd(host[0]),
                .stream = NameStream(singularity::UniqueFd(node[1]), singularity::UniqueFd(host[1]))};
    }
};

std::string read_all(const singularity::UniqueFd &from) {
    std::string out;
    std::array<char, 65536> some{};
    for (ssize_t count = 0; (count = recv(from.get(), some.data(), some.size(), 0)) > 0;)
        out.append(some.data(), static_cast<std::size_t>(count));
    return out;
}

void write_all(const singularity::UniqueFd &to, const std::string &text) {
    assert_int_equal(send(to.get(), text.data(), text.size(), 0), text.size());
}

void test_streams_to_name_servers(void ** /*state*/) {
    using Outcome = NameStream::Outcome;
    auto one = Streamed::make();
    assert_true(one.stream.pass() == Outcome::waits);
    write_all(one.program, "question");
    assert_true(one.stream.pass() == Outcome::waits);
    assert_string_equal(read_all(one.server).c_str(), "question");
    // More than is passed at once.
    const std::string answer(100000, 'a');
    write_all(one.server, answer);
    std::string read;
    for (int turn = 0; turn < 100 && read.size() < answer.size(); ++turn) {
        assert_true(one.stream.pass() != Outcome::over);
        read += read_all(one.program);
    }
    assert_true(read == answer);
    // Who asks no more still gets what he is answered.
    assert_int_equal(shutdown(one.program.get(), SHUT_WR), 0);
    assert_true(one.stream.pass() == Outcome::waits);
    assert_int_equal(recv(one.server.get(), read.data(), read.size(), 0), 0);
    write_all(one.server, "late");
    one.server.reset();
    assert_true(one.stream.pass() == Outcome::over);
    assert_string_equal(read_all(one.program).c_str(), "late");

    auto other = Streamed::make();
    other.program.reset();
    write_all(other.server, "to nobody");
    assert_true(other.stream.pass() == Outcome::over);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses_are_of_the_network),
        cmocka_unit_test(test_ipv6_addresses_go_with_those_of_ipv4),
        cmocka_unit_test(test_plans_that_are_none),
        cmocka_unit_test(test_ports_that_are_published),
        cmocka_unit_test(test_nodes_must_be_on_hosts_of_the_network),
        cmocka_unit_test(test_name_servers_at_the_loopback),
        cmocka_unit_test(test_streams_to_name_servers),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
