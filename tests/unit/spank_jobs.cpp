// SPDX-License-Identifier: GPL-2.0-or-later
// Parts of jobs that need no host: what ranks are told, what other agents may say, output that waits.
#include "agent/job/job_plan.hpp"
#include "agent/output/spool.hpp"
#include "cmocka.hpp"
#include "network/plan.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace singularity::agent;
namespace wire = singularity::peers::wire;

constexpr std::uint32_t kVni = 0x12ab34;

wire::ConnectJob connect_of(const std::vector<std::string> &hosts) {
    wire::ConnectJob out;
    auto nodes = plan_nodes(job_name(1000, kVni), kVni, hosts);
    assert_true(nodes.has_value());
    for (const auto &node : *nodes)
        *out.add_nodes() = node;
    assert_true(spread_ranks(*out.mutable_nodes(), 2, "j").has_value());
    return out;
}

void test_names_of_jobs(void ** /*state*/) {
    assert_string_equal(job_name(1000, kVni).c_str(), "u1000-j12ab34");
    assert_string_equal(job_name(0, 1).c_str(), "u0-j000001");
    assert_true(check_job_name("u1000-j12ab34", 1000).has_value());
    for (const char *bad : {"",
                            "u1000-j",
                            "u1000-j12ab3",
                            "u1000-j12ab345",
                            "u1001-j12ab34",
                            "u1000-j12AB34",
                            "u1000-j../..",
                            "../u1000-j12ab34",
                            "u1000-s",
                            "u1000-s47",
                            "u1000-s47-",
                            "u1000-s-0",
                            "u1000-s47-0-0",
                            "u1000-s47-0/..",
                            "u1001-s47-0",
                            "u1000-s47-batch0",
                            "u1000-s47-batch/..",
                            "u1000-s-batch",
                            "u1000-sbatch",
                            "u1000-sx-batch",
                            "u1001-s47-batch",
                            "u1000-s47-0000000000000000000"})
        assert_false(check_job_name(bad, 1000).has_value());
    assert_string_equal(job_name_of_step(1000, "4711.0").c_str(), "u1000-s4711-0");
    assert_true(check_job_name("u1000-s4711-0", 1000).has_value());
    assert_true(check_job_name("u1000-s4294967295-4294967295", 1000).has_value());
    assert_string_equal(job_name_of_step(1000, "4711.batch").c_str(), "u1000-s4711-batch");
    assert_true(check_job_name("u1000-s4711-batch", 1000).has_value());
    assert_true(check_job_name("u1000-s4294967295-batch", 1000).has_value());
    assert_non_null(std::strstr(check_job_name("", 1000).error().message().c_str(), "u1000-sJOB-batch"));
}

struct Share {
    const char *host;
    std::uint32_t first;
    std::uint32_t count;
};

// Nodes of so many ranks and devices each, on these hosts.
void expect_placed(int nodes, std::uint32_t each, std::uint32_t devices, const std::vector<Offer> &offers,
                   const std::vector<Share> &expected) {
    auto planned = *plan_nodes("j", kVni, std::vector<std::string>(static_cast<std::size_t>(nodes), "x"));
    JobNodes all(planned.begin(), planned.end());
    assert_true(spread_ranks(all, each, "j").has_value());
    for (auto &node : all)
        node.set_devices(devices);
    assert_true(place_nodes(all, offers, "j").has_value());
    for (int at = 0; at < nodes; ++at) {
        const auto &want = expected[static_cast<std::size_t>(at)];
        assert_string_equal(all[at].host().c_str(), want.host);
        assert_int_equal(all[at].first_device(), want.first);
        assert_int_equal(all[at].proxies(), want.count);
    }
}

void test_nodes_find_hosts_of_another_shape(void ** /*state*/) {
    const auto offer = [](const char *host, std::uint32_t tasks, std::uint32_t devices) {
        return Offer{.host = host, .tasks = tasks, .devices = devices};
    };
    expect_placed(2, 4, 4, {offer("a", 4, 4), offer("b", 4, 4)}, {{"a", 0, 4}, {"b", 0, 4}});
    expect_placed(2, 4, 4, {offer("a", 4, 1), offer("b", 4, 8)}, {{"a", 0, 1}, {"b", 0, 4}});
    expect_placed(2, 4, 4, {offer("a", 8, 4)}, {{"a", 0, 2}, {"a", 2, 2}});
    expect_placed(2, 4, 4, {offer("a", 8, 3)}, {{"a", 0, 1}, {"a", 1, 2}});
    expect_placed(2, 4, 4, {offer("a", 8, 1)}, {{"a", 0, 1}, {"a", 0, 1}});
    expect_placed(4, 2, 2, {offer("a", 6, 3), offer("b", 2, 2)},
                  {{"a", 0, 1}, {"a", 1, 1}, {"a", 2, 1}, {"b", 0, 2}});
    // What does not fit whole: nobody is left out, and the first is where the device proxies meet.
    expect_placed(2, 4, 4, {offer("a", 1, 1), offer("b", 7, 4)}, {{"a", 0, 1}, {"b", 0, 4}});
    expect_placed(1, 4, 0, {offer("a", 2, 0), offer("b", 2, 0)}, {{"a", 0, 0}});
    auto planned = *plan_nodes("j", kVni, {"x"});
    JobNodes one(planned.begin(), planned.end());
    assert_true(spread_ranks(one, 1, "j").has_value());
    one[0].set_devices(1);
    assert_false(place_nodes(one, {offer("a", 1, 0)}, "j").has_value());
    assert_false(place_nodes(one, {offer("a", 0, 1)}, "j").has_value());
}

bool has(const std::vector<std::string> &entries, const std::string &entry) {
    return std::ranges::count(entries, entry) == 1;
}

// Nodes of so many ranks each, with the devices that their hosts have for them; what they get.
void expect_given(const std::vector<std::uint32_t> &ranks, const std::vector<std::uint32_t> &devices,
                  std::string_view gpus, const std::vector<std::array<std::uint32_t, 2>> &expected,
                  bool script = false) {
    JobNodes nodes;
    for (std::size_t at = 0; at < ranks.size(); ++at) {
        auto *const node = nodes.Add();
        node->set_devices(devices[at]);
        for (std::uint32_t rank = 0; rank < ranks[at]; ++rank)
            node->add_ranks(rank); // only how many matters
    }
    give_requested_devices(nodes, gpus, script);
    for (std::size_t at = 0; at < ranks.size(); ++at) {
        assert_int_equal(nodes[static_cast<int>(at)].devices(), expected[at][0]);
        assert_int_equal(nodes[static_cast<int>(at)].proxies(), expected[at][1]);
    }
}

void test_a_job_that_begins_small_has_all_devices(void ** /*state*/) {
    expect_given({8}, {2}, "8:2:0", {{8, 2}});
    expect_given({8}, {2}, "8:2:1", {{8, 2}});
    expect_given({1}, {1}, "4:1:0", {{4, 1}}); // a batch script, or torchrun
    expect_given({1}, {1}, "4:1:1", {{4, 1}}, true);
    expect_given({4, 4}, {1, 1}, "8:2:0", {{4, 1}, {4, 1}});
    expect_given({2, 1}, {1, 1}, "7:2:0", {{4, 1}, {3, 1}});
    expect_given({2, 1}, {1, 1}, "6:2:2", {{4, 1}, {2, 1}});
    expect_given({3, 1}, {1, 2}, "4:3:0", {{3, 1}, {2, 0}}); // where there are more they stay
    expect_given({128}, {8}, "128:8:0", {{8, 0}});           // more than one node can have
    expect_given({4}, {2}, "8:2:4294967295", {{2, 0}});
    // At full size, of a step that has not all of the job's, and where nobody knows.
    expect_given({8}, {8}, "8:8:0", {{8, 0}});
    expect_given({8}, {1}, "8:2:0", {{1, 0}});
    expect_given({8}, {16}, "8:16:0", {{16, 0}});
    for (const char *unknown : {"", "8", "8:2", "8:2:0:", "8:2:x", ":2:0", "8:2:4294967296"})
        expect_given({8}, {2}, unknown, {{2, 0}});
    expect_given({8}, {0}, "8:0:0", {{0, 0}});
}

void test_what_tasks_are_told_of_all_devices(void ** /*state*/) {
    const std::vector<std::string> told{"CUDA_VISIBLE_DEVICES=0,1", "SLURM_STEP_GPUS=4,5",
                                        "SLURM_GPUS_ON_NODE=2", "SLURM_GPUS=2"};
    auto all = told;
    tell_devices(all, 4, 3, false);
    assert_true(all == std::vector<std::string>({"CUDA_VISIBLE_DEVICES=0,1,2,3", "SLURM_STEP_GPUS=0,1,2,3",
                                                 "SLURM_GPUS_ON_NODE=4", "SLURM_GPUS=2"}));
    auto bound = told;
    bound.emplace_back("SLURM_SINGULARITY_GPUS=8:2:2");
    tell_devices(bound, 8, 3, false);
    assert_true(has(bound, "CUDA_VISIBLE_DEVICES=6,7"));
    assert_true(has(bound, "SLURM_GPUS_ON_NODE=8"));
    auto script = told;
    script.emplace_back("SLURM_SINGULARITY_GPUS=4:2:1");
    tell_devices(script, 4, 0, true);
    assert_true(has(script, "CUDA_VISIBLE_DEVICES=0,1,2,3"));
    auto wrong = bound;
    tell_devices(wrong, 4, 3, false); // there are none for it alone
    assert_true(has(wrong, "CUDA_VISIBLE_DEVICES=0,1,2,3"));
}

void test_programs_are_the_same_but_for_hosts(void ** /*state*/) {
    const StepProgram before{.arguments = {"train", "--master=n1:29500", "x"}, .hosts = {"n1", "n2"}};
    assert_true(is_same_program(before, before));
    assert_true(
        is_same_program(before, {.arguments = {"train", "--master=n10:29500", "x"}, .hosts = {"n1", "n10"}}));
    assert_false(
        is_same_program(before, {.arguments = {"train", "--master=n10:29500", "x"}, .hosts = {"n1"}}));
    assert_false(
        is_same_program(before, {.arguments = {"train", "--master=n1:29501", "x"}, .hosts = {"n1"}}));
    assert_false(is_same_program(before, {.arguments = {"train", "--master=n1:29500"}, .hosts = {"n1"}}));
    assert_false(
        is_same_program(before, {.arguments = {"clean", "--master=n1:29500", "x"}, .hosts = {"n1"}}));
    const StepProgram part{.arguments = {"run-n1", "an1"}, .hosts = {"n1"}};
    assert_false(is_same_program(part, {.arguments = {"run-n2", "an2"}, .hosts = {"n2"}}));
}

void test_nodes_are_numbered_in_the_order_of_their_hosts(void ** /*state*/) {
    const auto connect = connect_of({"a.example", "b", "a"});
    assert_int_equal(connect.nodes().size(), 3);
    assert_string_equal(connect.nodes(0).host().c_str(), "a");
    assert_string_equal(connect.nodes(2).name().c_str(), "u1000-j12ab34-2");
    assert_string_equal(connect.nodes(2).address().c_str(), "10.107.52.3/24");
    assert_true(check_nodes(connect, "u1000-j12ab34", kVni).has_value());
    assert_false(plan_nodes("j", kVni, {}).has_value());
    // A step of hosts that are the second and the fifth of its job.
    wire::ConnectJob placed;
    const auto of_places = plan_nodes("j", kVni, {"b", "e"}, {2, 5});
    for (const auto &node : *of_places)
        *placed.add_nodes() = node;
    assert_true(spread_ranks(*placed.mutable_nodes(), 1, "j").has_value());
    assert_string_equal(placed.nodes(1).name().c_str(), "j-1");
    assert_string_equal(placed.nodes(0).address().c_str(), "10.107.52.2/24");
    assert_string_equal(placed.nodes(1).address().c_str(), "10.107.52.5/24");
    assert_true(check_nodes(placed, "j", kVni).has_value());
    placed.mutable_nodes(1)->set_place(2);
    placed.mutable_nodes(1)->set_address(placed.nodes(0).address());
    assert_false(check_nodes(placed, "j", kVni).has_value());
    for (const std::vector<std::uint32_t> &useless :
         std::vector<std::vector<std::uint32_t>>{{}, {2}, {2, 2}, {0, 1}, {1, network::kNodeLimit + 1}})
        assert_string_equal((*plan_nodes("j", kVni, {"b", "e"}, useless))[1].address().c_str(),
                            "10.107.52.2/24");
    assert_false(plan_nodes("j", kVni, {"a", "b/c"}).has_value());
    assert_false(plan_nodes("j", kVni, std::vector<std::string>(255, "a")).has_value());
}

void test_steps_of_a_job_have_the_same_addresses(void ** /*state*/) {
    std::set<std::uint32_t> used;
    for (const char *step : {"4711.0", "4711.1", "4711.batch", "4711.1023", "4711.1024", "4711.1"}) {
        const auto vni = network_of_step(step, 0, used);
        assert_true(vni != 0 && used.insert(vni).second);
        assert_int_equal(network::network_of(vni), network::network_of(4711));
    }
    assert_int_not_equal(network::network_of(network_of_step("4712.0", 0, {})), network::network_of(4711));
    // In another run, and for a job whose addresses are the same, it is another number.
    assert_false(used.contains(network_of_step("4711.0", 1, {})));
    assert_false(used.contains(network_of_step("21095.0", 0, {})));
    assert_int_equal(network::network_of(network_of_step("21095.0", 0, {})), network::network_of(4711));
    // 0 is the number of no network.
    assert_int_not_equal(network_of_step("16384.635", 0, {}), 0);
    for (std::uint32_t at = 0; at < network::kNetworksOfAddress; ++at)
        used.insert(network::with_addresses_of(4711, at));
    assert_int_equal(network_of_step("4711.0", 0, used), 0);
    assert_int_equal(network_of_step("x", 0, {}), 0);
}

void test_ranks_are_on_one_node_each(void ** /*state*/) {
    auto connect = connect_of({"a", "b", "a"});
    const auto nodes = nodes_of_ranks(connect.nodes(), "j");
    assert_true(nodes.has_value() && *nodes == std::vector<int>({0, 0, 1, 1, 2, 2}));
    assert_int_equal(rank_count(connect.nodes()), 6);
    // As srun --distribution=cyclic spreads them, and as many as there are.
    const auto placed = [&](const std::vector<std::vector<std::uint32_t>> &ranks) {
        for (int at = 0; const auto &those : ranks)
            *connect.mutable_nodes(at++)->mutable_ranks() = {those.begin(), those.end()};
        return nodes_of_ranks(connect.nodes(), "j");
    };
    assert_true(*placed({{0, 3}, {1}, {2}}) == std::vector<int>({0, 1, 2, 0}));
    assert_false(placed({{0, 3}, {1}, {}}).has_value());
    assert_false(placed({{0, 1}, {1}, {2}}).has_value());
    assert_false(placed({{0, 4}, {1}, {2}}).has_value());
    auto empty = *plan_nodes("j", kVni, std::vector<std::string>(17, "a"));
    JobNodes many(empty.begin(), empty.end());
    for (const std::uint32_t bad : {0U, kRanksOfNodeLimit + 1, 256U, ~0U})
        assert_false(spread_ranks(many, bad, "j").has_value());
    assert_int_equal(rank_count(many), 0);
}

void test_nodes_of_another_agent_are_checked(void ** /*state*/) {
    const auto refused = [](auto change) {
        auto connect = connect_of({"a", "b"});
        change(connect);
        return !check_nodes(connect, "u1000-j12ab34", kVni).has_value();
    };
    assert_false(refused([](wire::ConnectJob & /*good*/) {}));
    assert_true(refused([](wire::ConnectJob &connect) { connect.clear_nodes(); }));
    assert_true(refused([](wire::ConnectJob &connect) { connect.mutable_nodes(1)->set_number(1); }));
    assert_true(refused([](wire::ConnectJob &connect) { connect.mutable_nodes(0)->set_name("other"); }));
    assert_true(
        refused([](wire::ConnectJob &connect) { connect.mutable_nodes(0)->set_address("10.0.0.1/8"); }));
    assert_true(refused([](wire::ConnectJob &connect) { connect.mutable_nodes(1)->set_host("a b"); }));
    assert_true(refused([](wire::ConnectJob &connect) { connect.mutable_nodes(1)->clear_ranks(); }));
    assert_true(refused([](wire::ConnectJob &connect) { connect.mutable_nodes(1)->set_ranks(0, 0); }));
    assert_true(refused([](wire::ConnectJob &connect) {
        while (connect.nodes().size() < 300)
            *connect.add_nodes() = connect.nodes(0);
    }));
}

void test_what_ranks_are_told(void ** /*state*/) {
    const auto connect = connect_of({"a", "b"});
    wire::StartJob start;
    start.mutable_program()->add_arguments("true");
    for (const char *entry : {"RANK=77", "HOME=/h", "SLURM_PROCID=5", "RANKED=1"})
        start.mutable_program()->add_environment(entry);
    assert_true(check_start(start).has_value());
    const auto program = program_of(start, connect, connect.nodes(1), 1);
    for (const char *entry :
         {"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=u1000-j12ab34-0",
          "MASTER_PORT=29500", "SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_LOCALID=1", "SLURM_NODEID=1",
          "SLURM_NNODES=2", "HOME=/h", "RANKED=1"})
        assert_true(has(program.environment, entry));
    assert_int_equal(program.environment.size(), 13);
    assert_true(program.stdio == node::Stdio::kept);
    start.mutable_program()->add_arguments(std::string("a\0b", 3));
    assert_false(check_start(start).has_value());
}

struct File {
    std::filesystem::path path = "/tmp/spool-XXXXXX";
    File() {
        std::string text = path;
        close(mkstemp(text.data()));
        path = text;
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    File(File &&) = delete;
    File &operator=(File &&) = delete;
    ~File() { unlink(path.c_str()); }
};

void test_a_spool_gives_back_what_was_read(void ** /*state*/) {
    const File file;
    auto spool = Spool::open(file.path, 0);
    assert_true(spool.has_value());
    const std::string text(100000, 'a');
    assert_true(spool->append(text).has_value());
    assert_true(spool->append("tail").has_value());
    assert_int_equal(spool->end(), 100004);
    assert_true(spool->read(100000, 100)->text == "tail");
    assert_true(spool->read(100004, 100)->text.empty());
    assert_true(spool->read(1U << 30, 100)->offset == 100004);
    assert_true(spool->release(100001).has_value());
    assert_int_equal(spool->begin(), 65536); // whole blocks
    const auto piece = spool->read(10, 5);
    assert_int_equal(piece->offset, 65536);
    assert_true(piece->text == "aaaaa");
    assert_true(spool->release(10).has_value()); // nothing comes back
    assert_int_equal(spool->begin(), 65536);
}

void test_a_spool_is_found_again(void ** /*state*/) {
    const File file;
    {
        auto spool = Spool::open(file.path, 0);
        assert_true(spool->append(std::string(200000, 'x') + "end").has_value());
        assert_true(spool->release(150000).has_value());
    }
    struct stat about{};
    assert_int_equal(stat(file.path.c_str(), &about), 0);
    assert_int_equal(about.st_size, 200003);
    assert_true(about.st_blocks * 512 < 80000);
    auto again = Spool::open(file.path, 0);
    assert_int_equal(again->begin(), 131072);
    assert_int_equal(again->end(), 200003);
    assert_true(again->read(200000, 10)->text == "end");
    assert_true(again->append("!").has_value());
    assert_true(again->read(200003, 10)->text == "!");
}

wire::JobRecord record_of_a_job() {
    wire::JobRecord out;
    out.set_name(job_name(1000, kVni));
    *out.mutable_nodes() = connect_of({"n1", "n2"}).nodes();
    out.set_ranks(4);
    out.set_state(wire::JobRecord::RUNNING);
    out.add_ends()->set_rank(3);
    return out;
}

// From a disk, or the store: whoever has checked it uses ranks and nodes as indexes.
void test_records_name_nothing_that_is_not_there(void ** /*state*/) {
    assert_true(check_record(record_of_a_job()).has_value());
    const auto refused = [](auto change) {
        auto record = record_of_a_job();
        change(record);
        return !check_record(record).has_value();
    };
    assert_true(refused([](auto &record) { record.clear_nodes(); }));
    assert_true(refused([](auto &record) { record.set_ranks(5); }));
    assert_true(refused([](auto &record) { record.set_ranks(kRankLimit + 1); }));
    assert_true(refused([](auto &record) { record.mutable_nodes(0)->set_ranks(0, 4); }));
    assert_true(refused([](auto &record) { record.mutable_nodes(0)->set_ranks(0, 1); }));
    assert_true(refused([](auto &record) { record.add_ends()->set_rank(4); }));
    assert_true(refused([](auto &record) { record.add_ends()->set_rank(3); }));
    const auto without_ranks = [](auto &record) {
        for (auto &node : *record.mutable_nodes())
            node.clear_ranks();
    };
    assert_true(refused(without_ranks));
    // A step of Slurm's, whose hosts have not told yet.
    assert_false(refused([&](auto &record) {
        without_ranks(record);
        record.set_state(wire::JobRecord::PREPARING);
    }));
}

void test_exit_statuses(void ** /*state*/) {
    assert_int_equal(exit_status(0), 0);
    assert_int_equal(exit_status(7 << 8), 7);
    assert_int_equal(exit_status(9), 137);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_jobs),
        cmocka_unit_test(test_nodes_are_numbered_in_the_order_of_their_hosts),
        cmocka_unit_test(test_steps_of_a_job_have_the_same_addresses),
        cmocka_unit_test(test_ranks_are_on_one_node_each),
        cmocka_unit_test(test_nodes_find_hosts_of_another_shape),
        cmocka_unit_test(test_a_job_that_begins_small_has_all_devices),
        cmocka_unit_test(test_what_tasks_are_told_of_all_devices),
        cmocka_unit_test(test_programs_are_the_same_but_for_hosts),
        cmocka_unit_test(test_nodes_of_another_agent_are_checked),
        cmocka_unit_test(test_what_ranks_are_told),
        cmocka_unit_test(test_a_spool_gives_back_what_was_read),
        cmocka_unit_test(test_a_spool_is_found_again),
        cmocka_unit_test(test_records_name_nothing_that_is_not_there),
        cmocka_unit_test(test_exit_statuses),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
