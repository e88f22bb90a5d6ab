// SPDX-License-Identifier: GPL-2.0-or-later
// The parts of virtual nodes that decide on texts and packets.
#include "cmocka.hpp"
#include "common/unique_fd.hpp"
#include "node/cgroups.hpp"
#include "node/init_messages.hpp"
#include "node/mounts.hpp"
#include "node/network.hpp"
#include "node/record.hpp"
#include "node/seqpacket.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace singularity::node;

constexpr const char *kMountinfo = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
                                   "23 22 0:5 / /sys/kernel/debug rw - debugfs debugfs rw\n"
                                   "24 22 0:6 / /home rw shared:2 - nfs4 server:/home rw\n"
                                   "25 22 0:7 / /run/user/1000 rw - tmpfs tmpfs rw\n"
                                   "26 22 0:8 / /run/user\\040space rw - tmpfs tmpfs rw\n"
                                   "27 22 0:9 / /var/lib/docker rw - ext4 /dev/sdb rw\n"
                                   "28 22 0:10 net:[4026532] /srv/a\\040b rw - nsfs nsfs rw\n"
                                   "30 22 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuacct,cpu\n"
                                   "31 22 0:31 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
                                   "32 22 0:32 /top /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

void test_machine_mounts_are_pruned(void ** /*state*/) {
    const std::vector<std::string> expected{"/sys/kernel/debug", "/run/user/1000", "/var/lib/docker",
                                            "/srv/a b"};
    assert_true(pruned_mounts(kMountinfo) == expected);
    assert_true(pruned_mounts("").empty());
    assert_true(pruned_mounts("no mountinfo at all\n - \n").empty());
}

void test_cgroups_of_the_requester(void ** /*state*/) {
    const auto same = cgroup_files("4:freezer:/\n0::/top\n", "4:freezer:/\n0::/top\n", kMountinfo);
    assert_true(same.has_value() && same->empty());
    const auto other =
        cgroup_files("4:freezer:/slurm/job_1\n0::/top/job\n", "4:freezer:/\n0::/top\n", kMountinfo);
    assert_true(other.has_value());
    const std::vector<std::string> expected{"/sys/fs/cgroup/unified/job/cgroup.procs",
                                            "/sys/fs/cgroup/freezer/slurm/job_1/cgroup.procs"};
    assert_true(*other == expected);
}

void test_cgroups_that_cannot_be_joined(void ** /*state*/) {
    assert_false(cgroup_files("4:pids:/a\n", "4:pids:/\n", kMountinfo).has_value());
    assert_false(cgroup_files("0::/elsewhere\n", "0::/top\n", kMountinfo).has_value());
    assert_false(cgroup_files("4:freezer:/../a\n", "4:freezer:/\n", kMountinfo).has_value());
}

// What a user can have named and what he cannot; directories stand for cgroups.
void test_what_root_has_decided(void ** /*state*/) {
    if (geteuid() != 0)
        singularity::test::skip("directories of several owners: needs root");
    std::string top = "/tmp/spank_node.XXXXXX";
    assert_non_null(mkdtemp(top.data()));
    const auto mountinfo = "31 22 0:31 / " + top + " rw - cgroup cgroup rw,freezer\n32 22 0:32 /out " + top +
                           " rw - cgroup2 cgroup2 rw\n";
    const auto decided = [&](const std::string &line) { return made_by_root(line, mountinfo); };
    const auto path = top + "/a/b/c/d";
    std::filesystem::create_directories(path);
    using singularity::test::expect_equal;
    expect_equal(decided("4:freezer:/a/b/c/d\n0::/out/a/b/c/d\n"), "4:freezer:/a/b/c/d\n0::/out/a/b/c/d\n");
    expect_equal(decided("4:freezer:/a/b/gone/d\n"), "4:freezer:/a/b\n");
    expect_equal(decided("4:freezer:/\n"), "4:freezer:\n");
    expect_equal(decided("4:freezer:/../a\n4:pids:/a\n0::/elsewhere/a\nnonsense\n"), "");
    assert_int_equal(chown((top + "/a/b").c_str(), 1001, 1001), 0);
    expect_equal(decided("4:freezer:/a/b/c/d\n0::/out/a/b/c/d\n"), "4:freezer:/a/b\n0::/out/a/b\n");
    assert_int_equal(chown((top + "/a/b").c_str(), 0, 1001), 0);
    assert_int_equal(chmod((top + "/a/b").c_str(), 0775), 0);
    expect_equal(decided("4:freezer:/a/b/c/d\n"), "4:freezer:/a/b\n");
    assert_int_equal(chmod((top + "/a/b").c_str(), 0755), 0);
    std::filesystem::create_directory_symlink("c", top + "/a/b/link");
    expect_equal(decided("4:freezer:/a/b/link/d\n"), "4:freezer:/a/b\n");
    std::filesystem::remove_all(top);
}

void test_addresses(void ** /*state*/) {
    const auto address = parse_address("10.88.0.1/12");
    assert_true(address.has_value());
    assert_int_equal(ntohl(address->address), 0x0a580001);
    assert_int_equal(ntohl(address->mask), 0xfff00000);
    for (const char *bad : {"", "/", "10.88.0.1", "10.88.0.1/", "10.88.0.1/0", "10.88.0.1/33", "10.88.0.1/-1",
                            "10.88.0/8", "10.88.0.1/8 ", "::1/64", "0.0.0.0/8"})
        assert_false(parse_address(bad).has_value());
}

InitStart example() {
    InitStart start;
    start.task = 7;
    start.program.arguments = {"sh", "-c", ""};
    start.program.environment = {"A=1"};
    start.program.directory = "/";
    start.program.limits = {{.resource = 1, .soft = 2, .hard = 3}};
    start.program.stdio = Stdio::terminal;
    start.program.window = {.rows = 30, .columns = 100};
    return start;
}

void test_packets_come_back(void ** /*state*/) {
    const auto bytes = encode(example(), 9);
    const auto back = decode<InitStart>(bytes);
    assert_true(back.has_value());
    assert_int_equal(header_of(bytes)->token, 9);
    assert_true(back->program.arguments == example().program.arguments);
    assert_int_equal(back->program.limits.at(0).hard, 3);
    assert_int_equal(back->program.window.columns, 100);
    assert_true(encode(*back, 9) == bytes);
    assert_false(decode<InitSignal>(bytes).has_value());
}

// Cut anywhere, or with one byte changed: refused, or something that is a whole message.
void test_damaged_packets(void ** /*state*/) {
    const auto bytes = encode(example(), 9);
    for (std::size_t size = 0; size < bytes.size(); ++size)
        assert_false(decode<InitStart>(std::string_view(bytes).substr(0, size)).has_value());
    assert_false(decode<InitStart>(bytes + '\0').has_value());
    for (std::size_t at = 0; at < bytes.size(); ++at)
        for (int bit = 0; bit < 8; ++bit) {
            auto damaged = bytes;
            damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
            if (const auto back = decode<InitStart>(damaged))
                assert_true(encode(*back, header_of(damaged)->token) == damaged);
        }
}

void test_strings_without_zeros(void ** /*state*/) {
    InitStart start = example();
    start.program.directory = std::string("/a\0b", 4);
    assert_false(decode<InitStart>(encode(start)).has_value());
}

// On disk and in the store: a packet that belongs to a request is none, whatever is in it.
void test_records_belong_to_no_request(void ** /*state*/) {
    Record record;
    record.spec.name = "n1";
    auto bytes = encoded(record);
    const auto back = decoded(bytes);
    assert_true(back.has_value() && back->spec.name == "n1" && encoded(*back) == bytes);
    const std::uint32_t token = 7;
    bytes.replace(offsetof(Header, token), sizeof(token), reinterpret_cast<const char *>(&token),
                  sizeof(token));
    assert_int_equal(header_of(bytes)->token, token);
    assert_false(decoded(bytes).has_value());
}

void test_names_have_one_address(void ** /*state*/) {
    const auto text = singularity::node::hosts_with(
        "127.0.0.1 localhost\n# n1 was here\n10.0.0.1 n1 N1.cluster gate # old\n"
        "10.0.0.2 n2\n10.0.0.3 n3 # no newline",
        {{.name = "n1", .address = "10.64.1.1"}, {.name = "n2", .address = "10.64.1.2"}});
    assert_string_equal(text.c_str(), "10.64.1.1 n1\n10.64.1.2 n2\n127.0.0.1 localhost\n# n1 was here\n"
                                      "10.0.0.1 N1.cluster gate\n10.0.0.3 n3 # no newline\n");
}

// The kernel tells of the end first where something was left unread.
void test_the_last_words_are_heard(void ** /*state*/) {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const singularity::UniqueFd here(pair[0]);
    singularity::UniqueFd there(pair[1]);
    assert_int_equal(send_packet(here.get(), "an answer"), 0);
    assert_int_equal(send_packet(there.get(), "a request"), 0);
    assert_int_equal(send_packet(there.get(), "an order to end"), 0);
    there.reset();
    Packet packet;
    assert_true(receive_packet(here.get(), packet) == Received::packet);
    assert_true(packet.bytes == "a request");
    assert_true(receive_packet(here.get(), packet) == Received::packet);
    assert_true(packet.bytes == "an order to end");
    assert_true(receive_packet(here.get(), packet) == Received::hung_up);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_machine_mounts_are_pruned),
        cmocka_unit_test(test_cgroups_of_the_requester),
        cmocka_unit_test(test_cgroups_that_cannot_be_joined),
        cmocka_unit_test(test_what_root_has_decided),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_packets_come_back),
        cmocka_unit_test(test_damaged_packets),
        cmocka_unit_test(test_strings_without_zeros),
        cmocka_unit_test(test_records_belong_to_no_request),
        cmocka_unit_test(test_names_have_one_address),
        cmocka_unit_test(test_the_last_words_are_heard),
    };
    return cmocka_run_group_tests_name("virtual nodes", tests, nullptr, nullptr);
}
