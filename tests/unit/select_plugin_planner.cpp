// SPDX-License-Identifier: GPL-2.0-or-later
// What the planner makes of slurmctld's jobs and nodes: sizes, ledgers that live on, pools, and targets of
// jobs that move.
#include "cmocka.hpp"
#include "cover.hpp"
#include "outlook.hpp"
#include "records.hpp"
#include "report.hpp"
#include "subject.hpp"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace singularity::planner; // NOLINT(google-build-using-namespace): all of it is tested
namespace policy = singularity::policy;
namespace slurm = singularity::slurm;
using singularity::test::expect_contains;
using singularity::test::expect_equal;

constexpr std::time_t kStart = 1700000000;
constexpr policy::Milliseconds kNow = kStart * policy::kSecond;

slurm::Job pending(std::uint32_t id, const std::string &gpus, const std::string &note = {}) {
    slurm::Job job;
    job.known = job.pending = job.batch = job.may_requeue = true;
    job.fate = slurm::Fate::kRequeued;
    job.id = id;
    job.partition = "all";
    job.qos = "basic";
    job.eligible = kStart;
    job.least_nodes = 1;
    job.wishes.gpus.per_job = gpus;
    job.wishes.gpus.nodes = 1;
    job.admin_comment = note;
    return job;
}

slurm::Job running(std::uint32_t id, const std::string &gpus, const std::string &note,
                   std::vector<slurm::GpuShare> shares) {
    auto job = pending(id, gpus, note);
    job.pending = false;
    job.running = true;
    job.fate = slurm::Fate::kStays;
    job.started = kStart;
    job.shares = std::move(shares);
    return job;
}

std::string sizes(const slurm::Job &job, const Speeds &speeds = {}) {
    std::string out;
    for (const auto &size : sizes_of(job, speeds))
        out += fmt::format("{}{}/{}:{}", out.empty() ? "" : " ", size.gpus, size.block,
                           size.speed * 100 / policy::kOne);
    return out;
}

void sizes_at_which_jobs_run(void **) {
    expect_equal(sizes(pending(1, "gres/gpu:8")), "8/1:100");
    expect_equal(sizes(pending(1, "")), "");
    // With 8 ranks, 5 to 7 GPUs are no faster than 4.
    expect_equal(sizes(pending(1, "gres/gpu:8", "singularity: elastic=2-8")), "2/1:25 3/1:33 4/1:50 8/1:100");
    expect_equal(sizes(pending(1, "gres/gpu:8", "singularity: elastic=3-8 ranks=8")),
                 "3/1:33 4/1:50 8/1:100");
    // More ranks than GPUs, as many as there are at most.
    expect_equal(sizes(pending(1, "gres/gpu:4", "singularity: elastic=1-4 ranks=8")),
                 "1/1:25 2/1:50 3/1:66 4/1:100");
    auto nodes = pending(1, "", "singularity: elastic=2-8");
    nodes.wishes.gpus = {
        .per_job = {}, .per_node = "gres/gpu:4", .per_socket = {}, .per_task = {}, .nodes = 2};
    nodes.least_nodes = nodes.most_nodes = 2;
    expect_equal(sizes(nodes), "2/1:25 4/2:50 8/4:100");
    // What it has is a size, also one that nobody would choose.
    expect_equal(sizes(running(1, "gres/gpu:8", "singularity: elastic=2-8", {{"n1", 3}, {"n2", 3}})),
                 "2/1:25 3/1:33 6/1:50 8/1:100");
    // What its ranks have does not fit into memory of the hosts with 1 GPU, nor with 2.
    auto full = pending(1, "gres/gpu:8", "singularity: elastic=1-8 memory=655360:81920:1024 ranks=8");
    full.wishes.memory.all = 262144;
    expect_equal(sizes(full), "5/1:50 8/1:100");
    full.wishes.memory.all = 1048576;
    expect_equal(sizes(full), "1/1:12 2/1:25 3/1:33 4/1:50 8/1:100");
    // Of the site's own AdminComment nothing is known.
    expect_equal(sizes(pending(1, "gres/gpu:8", "project elastic=2-8")), "8/1:100");
    const auto many = sizes_of(pending(1, "gres/gpu:1000", "singularity: elastic=1-1000 ranks=1000000"));
    assert_true(many.size() <= kMostSizes + 1 && many.back().gpus == 1000);
    // More GPUs than there are anywhere: it is no range, and its sizes are not looked at one by one.
    expect_equal(sizes(pending(1, "gres/gpu:8", "singularity: elastic=1-4294967295 ranks=8")), "8/1:100");
    const auto most = sizes_of(pending(1, "gres/gpu:8", "singularity: elastic=1-1048576 ranks=8"));
    assert_int_equal(most.back().gpus, 1048576);
}

std::string sizes_within(const slurm::Job &job, const Range &allowed) {
    std::string out;
    for (const auto &size : sizes_of(job, {}, allowed))
        out += fmt::format("{}{}:{}", out.empty() ? "" : " ", size.gpus, size.speed * 100 / policy::kOne);
    return out;
}

void a_users_range_counts_within_the_sites(void **) {
    const std::string note = "singularity: elastic=2-8";
    const auto waits = pending(1, "gres/gpu:8", note);
    expect_equal(sizes_within(waits, {.least = 3, .most = 4}), "3:66 4:100");
    expect_equal(sizes_within(waits, {.least = 1, .most = 4}), "2:50 3:66 4:100");
    // Nothing is left of it, and where nobody's job can be so large: it stays as it is.
    expect_equal(sizes_within(waits, {.least = 9, .most = 16}), "8:100");
    expect_equal(sizes_within(waits, {.least = 1, .most = 0}), "8:100");
    for (const auto *const range :
         {"1-4294967295", "4294967295-4294967295", "1-1048577", "0-8", "8-2", "-8", "1-"})
        expect_equal(sizes(pending(1, "gres/gpu:8", fmt::format("singularity: elastic={}", range))),
                     "8/1:100");
    // What it has it may keep.
    const auto runs = [&](std::uint32_t gpus) { return running(1, "gres/gpu:8", note, {{"n1", gpus}}); };
    expect_equal(sizes_within(runs(8), {.least = 1, .most = 4}), "2:25 3:33 4:50 8:100");
    expect_equal(sizes_within(runs(2), {.least = 4, .most = 8}), "2:25 4:50 8:100");
    expect_equal(sizes_within(running(1, "gres/gpu:1", "singularity: elastic=1-8", {{"n1", 1}}),
                              {.least = 4, .most = 8}),
                 "1:12 4:50 8:100");
}

// A job with 8 ranks that runs on so many GPUs, of whose step 0 these checkpoints tell.
slurm::Job working(std::uint32_t gpus, const std::string &work, std::time_t resumed = 0) {
    return running(1, "gres/gpu:8",
                   fmt::format("singularity: elastic=2-8 ranks=8 resumed={} work={}", kStart + resumed, work),
                   {{"n1", gpus}});
}
std::string work(std::uint64_t operations, std::time_t when, const std::string &lines = "abc", int step = 0) {
    return fmt::format("{}:{}:{}:{}", step, operations, lines, kStart + when);
}

void look(Speeds &speeds, const slurm::Job &job) { speeds.look(job, gpus_of(job)); }

void speeds_are_measured(void **) {
    Speeds speeds;
    look(speeds, working(8, work(1000, 100)));
    assert_int_equal(speeds.rate(8), 0); // what it did before is unknown
    look(speeds, working(8, work(2000, 200)));
    assert_int_equal(speeds.rate(8), 10000);
    look(speeds, running(1, "gres/gpu:8", "singularity: work=0:3000:abc:-9223372036854775807", {{"n1", 8}}));
    assert_int_equal(speeds.rate(8), 10000);                                     // a time before 1970 is none
    expect_equal(sizes(working(8, ""), speeds), "2/1:25 3/1:33 4/1:50 8/1:100"); // one is none
    // Four are seen, then what they have done since it went on.
    look(speeds, working(4, work(2000, 200), 250));
    look(speeds, working(4, work(2800, 350), 250));
    assert_int_equal(speeds.rate(4), 8000);
    expect_equal(sizes(working(4, ""), speeds), "2/1:25 3/1:33 4/1:80 8/1:100");
    // What is noted when it was moved already belongs to where it was; whatever it says, it is not believed
    // to be slower than half of what is assumed, nor faster than twice, nor than a larger size.
    look(speeds, working(2, work(3120, 390), 500));
    assert_int_equal(speeds.rate(4), 8000);
    look(speeds, working(2, work(3150, 530), 500));
    assert_int_equal(speeds.rate(2), 1000);
    expect_equal(sizes(working(2, ""), speeds), "2/1:12 3/1:33 4/1:80 8/1:100");
    look(speeds, working(2, work(1ULL << 40U, 560), 500));
    expect_equal(sizes(working(2, ""), speeds), "2/1:50 3/1:50 4/1:80 8/1:100");
}

void speeds_of_jobs_that_are_saved_often(void **) {
    Speeds speeds;
    look(speeds, working(8, work(0, 100)));
    look(speeds, working(8, work(100, 110)));
    look(speeds, working(8, work(200, 120)));
    assert_int_equal(speeds.rate(8), 0); // less than half a minute is too short
    look(speeds, working(8, work(300, 130)));
    assert_int_equal(speeds.rate(8), 10000);
    look(speeds, working(8, work(400, 140)));
    // Moved: it is measured from the last of the run before, and from when it went on.
    look(speeds, working(4, work(400, 140), 200));
    look(speeds, working(4, work(450, 210), 200));
    look(speeds, working(4, work(500, 220), 200));
    assert_int_equal(speeds.rate(4), 0);
    look(speeds, working(4, work(550, 230), 200));
    assert_int_equal(speeds.rate(4), 5000);
    // One that was moved, saved, and moved again between two looks: on how many GPUs it did that is not
    // known.
    look(speeds, working(2, work(900, 300), 250));
    assert_int_equal(speeds.rate(4), 5000);
    assert_int_equal(speeds.rate(2), 0);
    look(speeds, working(2, work(960, 330), 250));
    assert_int_equal(speeds.rate(2), 2000);
    // It went on from an older checkpoint, or the clock was set back: measured anew from there.
    look(speeds, working(2, work(800, 400), 250));
    look(speeds, working(2, work(1000, 300), 250));
    assert_int_equal(speeds.rate(2), 2000);
    look(speeds, working(2, work(1030, 330), 250));
    assert_int_equal(speeds.rate(2), 1000);
}

void speeds_of_other_work_are_not_compared(void **) {
    const auto rate = [](const std::string &first, const std::string &second) {
        Speeds speeds;
        look(speeds, working(8, first));
        look(speeds, working(8, second));
        return speeds.rate(8);
    };
    assert_int_equal(rate(work(0, 100), work(100, 200)), 1000);
    assert_int_equal(rate(work(0, 100), work(100, 200, "abd")), 0);    // another communicator
    assert_int_equal(rate(work(0, 100), work(100, 200, "abc", 1)), 0); // another step
    assert_int_equal(rate(work(0, 100), work(100, 129)), 0);           // too short
    assert_int_equal(rate(work(0, 100), work(29, 200)), 0);            // too few
    assert_int_equal(rate(work(100, 100), work(50, 200)), 0);
    assert_int_equal(rate(work(0, 200), work(100, 100)), 0);
    for (const auto *const garbage :
         {"", "0", "0:1:x:5", "0:1:a:5:6", "0:1:a:", "-1:1:a:5", "0:99999999999999999999:a:5"})
        assert_int_equal(rate(garbage, work(100, 200)) + rate(work(0, 100), garbage), 0);
    // Speeds of another step, or of other communicators, say nothing of these.
    Speeds other;
    for (const auto &text : {work(0, 100), work(100, 200), work(0, 300, "abd")})
        look(other, working(8, text));
    assert_int_equal(other.rate(8), 0);
    Speeds speeds;
    for (const auto &text : {work(0, 100), work(100, 200), work(0, 300, "abc", 1)})
        look(speeds, working(8, text));
    assert_int_equal(speeds.rate(8), 0);
    // More sizes than are remembered: the oldest goes.
    std::uint64_t operations = 0;
    std::time_t when = 300;
    for (std::uint32_t gpus = 1; gpus <= 9; ++gpus) {
        look(speeds, working(gpus, work(operations, when, "abc", 1)));
        look(speeds, working(gpus, work(operations += 100, when += 100, "abc", 1)));
    }
    assert_int_equal(speeds.rate(1), 0);
    assert_int_equal(speeds.rate(9), 1000);
}

void tiers_and_movability(void **) {
    auto job = running(1, "gres/gpu:4", "singularity: elastic=2-4 ranks=4", {{"n1", 4}});
    assert_true(tier_of(job) == policy::Tier::kBasic && is_movable(job));
    job.qos = "normal";
    job.partition = "premium";
    assert_true(tier_of(job) == policy::Tier::kPremium);
    job.may_requeue = false;
    assert_false(is_movable(job));
    assert_false(
        is_movable(running(1, "gres/gpu:4", "singularity: elastic=2-4", {{"n1", 4}}))); // no step yet
    assert_false(
        is_movable(running(1, "gres/gpu:4", "singularity: elastic=2-4 ranks=4 unsavable=yes", {{"n1", 4}})));
}

void priorities_of_jobs_that_wait(void **) {
    const policy::Rules rules;
    policy::Job job;
    const auto factor = [&](policy::Tier tier, policy::Milliseconds worked) {
        job.tier = tier;
        job.elapsed = job.hour_elapsed = policy::kMinute;
        job.work = job.hour_work = policy::kOne * worked;
        return site_factor_of(job, rules, 1000);
    };
    assert_int_equal(factor(policy::Tier::kBasic, 0), 0);
    assert_int_equal(factor(policy::Tier::kStandard, policy::kMinute), 1000);
    assert_int_equal(factor(policy::Tier::kStandard, 0), 1350);
    assert_int_equal(factor(policy::Tier::kPremium, 0), 2450); // 0.95 below, in tenths
    assert_int_equal(factor(policy::Tier::kPremium, policy::kMinute / 2), 2200);
}

void ledgers_live_on(void **) {
    Records records;
    auto job = pending(7, "gres/gpu:4", "singularity: elastic=2-4 ranks=4");
    records.look(std::vector{job}, kNow + policy::kMinute);
    assert_int_equal(records.find(7)->ledger.life(), 0);
    job = running(7, "gres/gpu:4", job.admin_comment, {{"n1", 4}});
    job.started = kStart + 60;
    records.look(std::vector{job}, kNow + (2 * policy::kMinute));
    assert_int_equal(records.find(7)->ledger.life(), policy::kOne / 2);
    // Run again on half of the GPUs: nothing is done until it has been restored.
    job.restarts = 1;
    job.shares = {{"n1", 2}};
    job.started = kStart + 120;
    records.look(std::vector{job}, kNow + (3 * policy::kMinute));
    assert_int_equal(records.find(7)->ledger.work() / policy::kMinute, policy::kOne);
    job.admin_comment += fmt::format(" resumed={}", kStart + 180);
    records.look(std::vector{job}, kNow + (4 * policy::kMinute));
    assert_int_equal(records.find(7)->ledger.work() / policy::kMinute, policy::kOne * 3 / 2);

    const auto bytes = records.write();
    Records again;
    assert_true(again.read(bytes, "state").has_value());
    assert_int_equal(again.find(7)->ledger.work(), records.find(7)->ledger.work());
    const auto expect_refused = [&](std::string_view what) {
        const auto read = again.read(what, "state");
        assert_false(read.has_value());
        expect_contains(read.error().message(), "state");
        assert_non_null(again.find(7)); // what there was is there
    };
    expect_refused(std::string_view(bytes).substr(0, bytes.size() - 1));
    expect_refused("");
    auto damaged = bytes;
    damaged.back() = static_cast<char>(damaged.back() ^ 1);
    expect_refused(damaged);

    records.look({}, kNow + (5 * policy::kMinute));
    assert_null(records.find(7));
}

std::vector<slurm::Node> two_nodes() {
    std::vector<slurm::Node> nodes(2);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        nodes[i].known = true;
        nodes[i].name = fmt::format("n{}", i + 1);
        nodes[i].gpus = 4;
        nodes[i].partitions = {"all"};
    }
    return nodes;
}

Outlook looked(std::span<const slurm::Node> nodes, std::span<const slurm::Job> jobs, Records &records) {
    records.look(jobs, kNow + policy::kMinute);
    auto out = look(nodes, jobs, records, kNow + policy::kMinute);
    for (const auto &pool : out.pools)
        expect_equal(policy::defect_of(pool.snapshot), "");
    return out;
}

void pools_are_what_partitions_share(void **) {
    auto nodes = two_nodes();
    const std::vector jobs{pending(1, "gres/gpu:2")};
    Records records;
    assert_int_equal(looked(nodes, jobs, records).pools.size(), 1);
    nodes[1].partitions = {"other"};
    auto out = looked(nodes, jobs, records);
    assert_int_equal(out.pools.size(), 2);
    assert_int_equal(out.pools[0].jobs.size() + out.pools[1].jobs.size(), 1);
    nodes[1].partitions = {"other", "all"};
    assert_int_equal(looked(nodes, jobs, records).pools.size(), 1);
}

void partitions_may_overlap(void **) {
    auto nodes = two_nodes();
    nodes.push_back(nodes.front());
    nodes.back().name = "n3";
    nodes[1].partitions = {"all", "few"};
    nodes[2].partitions = {"few", "all"};
    nodes[0].leaf = nodes[1].leaf = nodes[2].leaf = "s1";
    std::vector jobs{pending(1, "gres/gpu:2"), pending(2, "gres/gpu:2"), pending(3, "gres/gpu:2"),
                     running(4, "gres/gpu:4", "", {{"n1", 4}}), pending(5, "gres/gpu:2")};
    jobs[1].partition = "few";
    jobs[2].partition = "gone,few,none";
    jobs[3].partition = "few"; // since it began, its node has left
    jobs[4].partition = "none";
    Records records;
    const auto out = looked(nodes, jobs, records);
    assert_int_equal(out.pools.size(), 1);
    const auto &snapshot = out.pools.front().snapshot;
    assert_int_equal(snapshot.nodes[0].kind, 0);
    assert_int_equal(snapshot.nodes[1].kind, 1);
    assert_int_equal(snapshot.nodes[2].kind, 1);
    assert_int_equal(snapshot.nodes[1].leaf, 1); // the switch counts for each kind
    const auto kinds_of = [&](std::uint32_t id) {
        for (const auto &job : snapshot.jobs)
            if (job.id == id)
                return job.kinds;
        return policy::kAllKinds;
    };
    assert_int_equal(kinds_of(1), 0b11);
    assert_int_equal(kinds_of(2), 0b10);
    assert_int_equal(kinds_of(3), 0b10);
    assert_int_equal(kinds_of(4), 0b11);
    assert_int_equal(out.left.size(), 1);
    expect_equal(out.left.front().why, "its partition has no GPUs that it could use");
    // What nobody asks for makes no difference.
    const auto same = looked(nodes, std::vector{pending(1, "gres/gpu:2")}, records);
    assert_int_equal(same.pools.front().snapshot.nodes[2].kind, 0);
    assert_int_equal(same.pools.front().snapshot.nodes[2].leaf, 0);
    // More kinds than can be told apart.
    nodes.resize(100, nodes.front());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        nodes[i].name = fmt::format("n{}", i + 1);
        nodes[i].partitions = {"all", fmt::format("p{}", i)};
    }
    jobs.assign(100, jobs.front());
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        jobs[i].id = 1000 + static_cast<std::uint32_t>(i);
        jobs[i].partition = fmt::format("p{}", i);
    }
    const auto many = looked(nodes, jobs, records);
    assert_int_equal(many.pools.front().snapshot.nodes[98].kind, policy::kMostKinds - 1);
    assert_true(many.pools.front().snapshot.jobs[1].kinds == 0b10);
    for (const std::size_t last : {63U, 99U})
        assert_true(many.pools.front().snapshot.jobs[last].kinds == policy::Kinds{1}
                                                                        << (policy::kMostKinds - 1));
}

void types_and_features_are_demanded(void **) {
    auto nodes = two_nodes();
    nodes.push_back(nodes.front());
    nodes.back().name = "n3";
    nodes[0].gpu_types = nodes[1].gpu_types = {"a100"};
    nodes[2].gpu_types = {"h100"};
    nodes[1].features = {"ib", "new"};
    nodes[2].features = {"new"};
    const auto kinds_of = [&](const std::string &gpus, const std::string &features) {
        std::vector jobs{pending(1, gpus), pending(2, "gres/gpu:1"), pending(3, "gres/gpu:1"),
                         pending(4, "gres/gpu:1")};
        jobs[0].features = features;
        jobs[1].features = "ib&new"; // all make a difference
        jobs[2].wishes.gpus.per_job = "gres/gpu:h100:1";
        jobs[3].wishes.gpus.per_job = "gres/gpu:a100:1";
        Records records;
        const auto out = looked(nodes, jobs, records);
        if (!out.left.empty())
            return out.left.front().why;
        std::string in;
        for (std::size_t i = 0; i < nodes.size(); ++i)
            if (policy::is_among(out.pools.front().snapshot.nodes[i].kind,
                                 out.pools.front().snapshot.jobs.front().kinds))
                in += nodes[i].name;
        return in;
    };
    expect_equal(kinds_of("gres/gpu:2", ""), "n1n2n3");
    expect_equal(kinds_of("gres/gpu:a100:2", ""), "n1n2");
    expect_equal(kinds_of("gres:gpu:h100:2", ""), "n3");
    expect_equal(kinds_of("gres/gpu:2", "new"), "n2n3");
    expect_equal(kinds_of("gres/gpu:2", "new&ib"), "n2");
    expect_equal(kinds_of("gres/gpu:2", "ib|new"), "n2n3");
    expect_equal(kinds_of("gres/gpu:a100:2", "ib|new"), "n2");
    expect_equal(kinds_of("gres/gpu:h100:2", "ib"), "its partition has no GPUs that it could use");
    expect_contains(kinds_of("gres/gpu:2", "[rack1|rack2]"), "its --constraint=[rack1|rack2] is more than");
    expect_contains(kinds_of("gres/gpu:2", "ib&new|old"), "is more than");
    expect_equal(kinds_of("gres/gpu:a100:1,gres/gpu:h100:1", ""), "it asks for GPUs of several types");
    // One that runs then stays where it is.
    std::vector jobs{running(1, "gres/gpu:4", "singularity: elastic=2-4 ranks=4", {{"n1", 4}})};
    Records records;
    assert_true(looked(nodes, jobs, records).pools.front().snapshot.jobs.front().movable);
    jobs[0].features = "ib*2";
    assert_false(looked(nodes, jobs, records).pools.front().snapshot.jobs.front().movable);
}

void nodes_hang_on_switches(void **) {
    auto nodes = two_nodes();
    nodes.push_back(nodes.front());
    nodes.back().name = "n3";
    const auto leaves = [&] {
        Records records;
        std::string out;
        for (const auto &pool : looked(nodes, {}, records).pools)
            for (const auto &node : pool.snapshot.nodes)
                out += fmt::format("{} ", node.leaf);
        return out;
    };
    expect_equal(leaves(), "0 0 0 ");
    nodes[0].leaf = nodes[2].leaf = "s7";
    nodes[1].leaf = "s1";
    expect_equal(leaves(), "0 1 0 ");
    nodes[0].partitions = {"other"}; // each pool has numbers of its own
    expect_equal(leaves(), "0 0 1 ");
}

void what_is_left_alone(void **) {
    auto nodes = two_nodes();
    nodes[1].down = true;
    std::vector jobs{pending(1, "gres/gpu:2"), pending(2, "gres/gpu:2"),
                     running(3, "gres/gpu:4", "", {{"n2", 4}}), pending(4, "")};
    jobs[0].waiting = slurm::Waiting::kForOther;
    jobs[1].wishes.required_nodes = "n1";
    Records records;
    const auto out = looked(nodes, jobs, records);
    assert_int_equal(out.pools.front().jobs.size(), 0);
    assert_int_equal(out.left.size(), 3);
    expect_contains(out.left[1].why, "by their names");
    expect_contains(out.left[2].why, "down");
}

void what_a_limit_refuses_is_not_tried_again_at_once(void **) {
    const auto nodes = two_nodes();
    const std::string note = "singularity: elastic=2-8 ranks=8";
    auto job = running(1, "gres/gpu:4", note, {{"n1", 4}});
    Records records;
    const auto known = [&](policy::Milliseconds when) {
        records.look(std::vector{job}, kNow + when);
        std::string out;
        for (const auto &size : records.sizes_of(job))
            out += fmt::format("{} ", size.gpus);
        return out;
    };
    const auto why = [&](policy::Milliseconds when) {
        const std::vector jobs{job};
        const auto out = look(nodes, jobs, records, kNow + when);
        return out.left.empty() ? std::string() : out.left.front().why;
    };
    expect_equal(known(0), "2 3 4 8 ");
    // It was told to grow, and does not start with 8.
    auto *const record = records.find(1);
    record->moving_since = kNow;
    record->moving_until = kNow + kMostMoving;
    record->moving_to = 8;
    record->resized = kNow;
    job = pending(1, "gres/gpu:8", note);
    job.restarts = 1;
    job.waiting = slurm::Waiting::kForTime;
    expect_equal(known(policy::kSecond), "2 3 4 8 ");
    assert_true(record->moving_until != 0);
    job.waiting = slurm::Waiting::kForSize;
    expect_equal(known(2 * policy::kSecond), "2 3 4 8 ");
    assert_int_equal(record->moving_until, 0);
    expect_equal(why(2 * policy::kSecond), "");
    expect_equal(known(60 * policy::kSecond), "2 3 4 ");
    expect_equal(why(60 * policy::kSecond), "");
    // With 4 neither; Slurm has not yet said why it waits with them.
    job.wishes.gpus.per_job = "gres/gpu:4";
    record->resized = kNow + (61 * policy::kSecond);
    expect_equal(known(62 * policy::kSecond), "2 3 4 ");
    expect_equal(why(62 * policy::kSecond), "");
    expect_equal(known(121 * policy::kSecond), "2 ");
    expect_equal(why(121 * policy::kSecond), "");
    job.wishes.gpus.per_job = "gres/gpu:2";
    record->resized = kNow + (122 * policy::kSecond);
    expect_equal(known(190 * policy::kSecond), "2 ");
    expect_contains(why(190 * policy::kSecond), "a limit of its QOS or association");
    // It runs after all: it does not grow, until it is tried again.
    job = running(1, "gres/gpu:2", note, {{"n1", 2}});
    expect_equal(known(200 * policy::kSecond), "2 ");
    expect_equal(known((189 * policy::kSecond) + kRefused), "2 ");
    expect_equal(known((191 * policy::kSecond) + kRefused), "2 3 4 8 ");
    // A size that its user has chosen waits for what others use of a limit.
    job = pending(2, "gres/gpu:8", note);
    job.waiting = slurm::Waiting::kForRoom;
    expect_equal(known((200 * policy::kSecond) + kRefused), "2 3 4 8 ");
    job.waiting = slurm::Waiting::kForSize;
    expect_equal(known((500 * policy::kSecond) + kRefused), "2 3 4 8 ");
    expect_contains(why((500 * policy::kSecond) + kRefused), "a limit of its QOS or association");
}

void moving_jobs_are_where_they_will_be(void **) {
    const auto nodes = two_nodes();
    std::vector jobs{running(1, "gres/gpu:8", "singularity: elastic=2-8 ranks=8", {{"n1", 4}, {"n2", 4}})};
    Records records;
    records.look(jobs, kNow);
    auto *const record = records.find(1);
    record->moving_since = kNow;
    record->moving_until = kNow + kMostMoving;
    record->moving_to = 4;
    records.aim(1, {{"n2", 4}});
    const auto shares = [&] {
        const auto out = looked(nodes, jobs, records);
        std::string text;
        for (const auto &job : out.pools.front().snapshot.jobs) {
            text += job.state == policy::JobState::kMoving ? "moves" : "other";
            for (const auto &share : out.pools.front().snapshot.shares_of(job))
                text += fmt::format(" {}:{}", share.node, share.gpus);
            text += ';';
        }
        return text;
    };
    expect_equal(shares(), "moves 1:4;");
    jobs[0] = pending(1, "gres/gpu:4", jobs[0].admin_comment);
    expect_equal(shares(), "moves 1:4;");
    // Somebody else was faster.
    jobs.push_back(running(2, "gres/gpu:4", "", {{"n2", 4}}));
    expect_equal(shares(), "other 1:4;other;");
    // It runs again: that is what there was to wait for.
    jobs.pop_back();
    jobs[0] = running(1, "gres/gpu:4",
                      fmt::format("singularity: elastic=2-8 ranks=8 resumed={}", kStart + 20), {{"n1", 4}});
    jobs[0].restarts = 1;
    jobs[0].started = kStart + 10;
    expect_equal(shares(), "other 0:4;");
    assert_int_equal(records.find(1)->moving_until, 0);
}

void whom_slurm_does_not_preempt(void **) {
    const auto nodes = two_nodes();
    std::vector jobs{running(1, "gres/gpu:4", "singularity: elastic=2-4 ranks=4", {{"n1", 4}}),
                     running(2, "gres/gpu:1", "", {{"n2", 1}}),
                     running(3, "gres/gpu:1", "", {{"n2", 1}}),
                     pending(4, "gres/gpu:2"),
                     pending(5, "gres/gpu:8"),
                     pending(6, "gres/gpu:1"),
                     pending(7, "")};
    jobs[2].qos = "premium";
    jobs[2].eligible = kStart - 3600; // for an hour it has had nothing
    jobs[5].waiting = slurm::Waiting::kForOther;
    Records records;
    records.look(std::vector{pending(3, "gres/gpu:1")}, kNow - (60 * policy::kMinute));
    const auto out = looked(nodes, jobs, records);
    const policy::Rules rules;
    const std::vector plans{policy::plan(out.pools[0].snapshot, rules)};
    const auto protection = cover(out, plans, jobs, rules, kStart + 90);
    expect_equal(protection.write(), fmt::format("singularity-planner protection 1\nuntil {}\nnewest 7\n"
                                                 "served 4\nwaiting 5\ncovered 1 3\n",
                                                 kStart + 90));
}

void words_and_metrics(void **) {
    const auto nodes = two_nodes();
    const std::vector jobs{
        running(1, "gres/gpu:8", "singularity: elastic=2-8 ranks=8", {{"n1", 4}, {"n2", 4}}),
        pending(2, "gres/gpu:1000")};
    Records records;
    const auto out = looked(nodes, jobs, records);
    const policy::Rules rules;
    const Thought thought{.when = kStart + 60,
                          .dry_run = true,
                          .looks = 3,
                          .plans = {policy::plan(out.pools[0].snapshot, rules)}};
    const auto text = words(out, thought, rules);
    expect_contains(text, "2 nodes, 8 GPUs, 8 given away");
    expect_contains(
        text, "         1 basic     runs        8       2-8     100   100.0   100.0         0      0\n");
    expect_contains(text, "job 2 (basic) waits: even its smallest size is more than the cluster has");
    const auto page = metrics(out, thought, Done{}, rules);
    expect_contains(page, "singularity_planner_gpus{tier=\"basic\"} 8\n");
    expect_contains(page, "singularity_planner_job_gpu_fraction{job=\"1\",tier=\"basic\"} 1\n");
    expect_contains(page, "singularity_planner_looks_total 3\n");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(sizes_at_which_jobs_run),
        cmocka_unit_test(a_users_range_counts_within_the_sites),
        cmocka_unit_test(speeds_are_measured),
        cmocka_unit_test(speeds_of_jobs_that_are_saved_often),
        cmocka_unit_test(speeds_of_other_work_are_not_compared),
        cmocka_unit_test(tiers_and_movability),
        cmocka_unit_test(priorities_of_jobs_that_wait),
        cmocka_unit_test(ledgers_live_on),
        cmocka_unit_test(pools_are_what_partitions_share),
        cmocka_unit_test(partitions_may_overlap),
        cmocka_unit_test(types_and_features_are_demanded),
        cmocka_unit_test(nodes_hang_on_switches),
        cmocka_unit_test(what_is_left_alone),
        cmocka_unit_test(what_a_limit_refuses_is_not_tried_again_at_once),
        cmocka_unit_test(moving_jobs_are_where_they_will_be),
        cmocka_unit_test(whom_slurm_does_not_preempt),
        cmocka_unit_test(words_and_metrics),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
