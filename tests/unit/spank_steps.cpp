// SPDX-License-Identifier: GPL-2.0-or-later
// Steps of Slurm's: which cgroups are those of one, what its tasks ask for, and what its wrappers are told
// when.
#include "agent/limits/program_memory.hpp"
#include "agent/protocol/client.hpp"
#include "agent/slurm/slurm_cgroup.hpp"
#include "agent/slurm/slurm_job.hpp"
#include "agent/step/steps.hpp"
#include "cmocka.hpp"
#include "common/unix_socket.hpp"
#include "task/step_request.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;
using singularity::Deadline;
using singularity::agent::cgroups_of_step;
using singularity::agent::cgroups_of_task;
using singularity::agent::JoinStep;
using singularity::agent::Responder;
using singularity::agent::Step;
using singularity::task::script_request;
using singularity::task::step_request;
using singularity::test::expect_contains;
using singularity::test::expect_equal;
namespace node = singularity::node;

constexpr auto kVersion1 = "9:devices:/slurm_n1/uid_1001/job_47/step_3/task_1\n"
                           "7:cpu,cpuacct:/\n"
                           "4:freezer:/slurm_n1/uid_1001/job_47/step_3\n"
                           "0::/init\n";
constexpr auto kVersion2 = "0::/system.slice/slurmstepd.scope/job_47/step_0/user/task_1\n";

std::string step_of_cgroups(std::string_view text) {
    return singularity::agent::step_of(singularity::agent::slurm_cgroup(text, 1001));
}

void a_step_is_known_by_its_cgroups(void **) {
    expect_equal(step_of_cgroups(kVersion1), "47.3");
    expect_equal(step_of_cgroups(kVersion2), "47.0");
    expect_equal(step_of_cgroups("0::/docker/4f/system.slice/n1_slurmstepd.scope/job_47/step_0\n"), "47.0");
    expect_equal(step_of_cgroups("4:freezer:/slurm_n1/uid_1001/job_47/step_batch\n"), "");
    expect_equal(step_of_cgroups("4:freezer:/slurm_n1/uid_1001/job_x/step_3\n"), "");
    expect_equal(step_of_cgroups("4:freezer:/slurm_n1/uid_1001/job_47\n"), "");
    expect_equal(step_of_cgroups("4:freezer:/slurm_n1/uid_1001/job_47/step_\n"), "");
    expect_equal(step_of_cgroups("4:freezer:/slurm_n1/uid_1001/job_47/step_3x\n"), "");
    expect_equal(step_of_cgroups("0::/user.slice\n"), "");
    expect_equal(step_of_cgroups("0::\n0\n\n:::\n0::/\n0:://\n"), "");
    expect_equal(step_of_cgroups(""), "");
}

// Of paths that root has made, only those that Slurm makes for the one who asks; of several the outermost.
void a_step_is_where_slurm_makes_it(void **) {
    expect_equal(step_of_cgroups("4:freezer:/slurm_n1/uid_1002/job_47/step_3\n"), "");
    expect_equal(step_of_cgroups("4:freezer:/slurm_n1/uid_10010/job_47/step_3\n"), "");
    expect_equal(step_of_cgroups("0::/user.slice/user-1001.slice/user@1001.service/job_47/step_3\n"), "");
    expect_equal(step_of_cgroups("0::/job_47/step_3\n"), "");
    expect_equal(step_of_cgroups("0::/x/job_47/y/step_3\n"), "");
    expect_equal(step_of_cgroups("0::/step_3/slurmstepd.scope/job_47\n"), "");
    expect_equal(
        step_of_cgroups(
            "0::/system.slice/slurmstepd.scope/job_5/step_1/user/task_0/slurmstepd.scope/job_47/step_3\n"),
        "5.1");
}

void a_script_is_known_by_its_cgroups(void **) {
    const auto script_of = [](std::string_view text) {
        return singularity::agent::script_of(singularity::agent::slurm_cgroup(text, 1001));
    };
    assert_int_equal(script_of("4:freezer:/slurm_n1/uid_1001/job_47/step_batch\n"), 47);
    assert_int_equal(script_of("0::/system.slice/slurmstepd.scope/job_47/step_batch/user/task_0\n"), 47);
    assert_int_equal(script_of("4:freezer:/slurm_n1/uid_1002/job_47/step_batch\n"), 0);
    assert_int_equal(script_of("0::/user.slice/job_47/step_batch\n"), 0);
    assert_int_equal(script_of(kVersion1), 0);
    assert_int_equal(script_of("0::/step_batch\n"), 0);
    assert_int_equal(script_of("0::/slurmstepd.scope/job_99999999999/step_batch\n"), 0);
    assert_int_equal(script_of("0::/slurmstepd.scope/job_0/step_batch\n"), 0);
    assert_int_equal(script_of(""), 0);
    expect_equal(singularity::agent::step_of_script(4294967295), "4294967295.batch");
    assert_true(singularity::agent::is_script("47.batch"));
    for (const char *const other : {"", "batch", "47", "47.", "47.0", "47.batch0", "47.0.batch"})
        assert_false(singularity::agent::is_script(other));
}

void what_is_the_steps_is_not_one_tasks(void **) {
    expect_equal(cgroups_of_step(kVersion1), "9:devices:/slurm_n1/uid_1001/job_47/step_3\n"
                                             "7:cpu,cpuacct:/\n"
                                             "4:freezer:/slurm_n1/uid_1001/job_47/step_3\n"
                                             "0::/init\n");
    expect_equal(cgroups_of_step(kVersion2), kVersion2);
}

// Device proxies count the devices of their step, and a task may have fewer.
void a_task_has_its_own_cgroups_but_for_devices(void **) {
    expect_equal(cgroups_of_task(kVersion2), kVersion2);
    expect_equal(cgroups_of_task("9:devices:/slurm_n1/uid_1001/job_47/step_3/task_1\n"
                                 "8:pids,devices:/slurm_n1/uid_1001/job_47/step_3/task_1\n"
                                 "6:memory:/slurm_n1/uid_1001/job_47/step_3/task_1\n"
                                 "5:mydevices:/slurm_n1/uid_1001/job_47/step_3/task_1\n"
                                 "4:freezer:/slurm_n1/uid_1001/job_47/step_3\n"),
                 "9:devices:/slurm_n1/uid_1001/job_47/step_3\n"
                 "8:pids,devices:/slurm_n1/uid_1001/job_47/step_3\n"
                 "6:memory:/slurm_n1/uid_1001/job_47/step_3/task_1\n"
                 "5:mydevices:/slurm_n1/uid_1001/job_47/step_3/task_1\n"
                 "4:freezer:/slurm_n1/uid_1001/job_47/step_3\n");
}

std::vector<std::string> good() {
    return {
        "SINGULARITY_STEP_HOSTS=n1,n2", "SLURM_STEP_TASKS_PER_NODE=3,4", "SLURM_PROCID=4", "SLURM_NODEID=1",
        "SLURM_GPUS_ON_NODE=2",         "CUDA_VISIBLE_DEVICES=0,1",      "HOME=/",         "SLURM_LOCALID=1"};
}

void a_task_says_what_slurm_has_told_it(void **) {
    const auto request = step_request(good());
    assert_true(request.has_value());
    assert_true(request->join.hosts == std::vector<std::string>({"n1", "n2"}));
    assert_int_equal(request->join.node, 1);
    assert_int_equal(request->join.rank, 4);
    assert_int_equal(request->join.ranks_here, 4);
    assert_int_equal(request->join.ranks, 7);
    assert_int_equal(request->join.devices, 2);
    expect_equal(request->visible_devices, "");
    assert_int_equal(request->join.restarts, 0);
    auto again = good();
    again.insert(again.end(),
                 {"SLURM_RESTART_COUNT=2", "SLURM_CLUSTER_NAME=c", "SINGULARITY_STEP_EVERY=1800"});
    assert_int_equal(step_request(again)->join.restarts, 2);
    assert_int_equal(step_request(again)->join.every, 1800);
    expect_equal(step_request(again)->join.cluster, "c");
    expect_equal(step_request(again)->join.store, "");
    again.back() = "SINGULARITY_STEP_EVERY=often";
    expect_contains(step_request(again).error().message(),
                    "SINGULARITY_STEP_EVERY=often is not a whole number");
    again.back() = "SINGULARITY_STEP_STORE=/shared/fast";
    expect_equal(step_request(again)->join.store, "/shared/fast");
    expect_equal(step_request(again)->join.identity, "");
    again.back() = "SLURM_SINGULARITY_JOB=0123456789abcdef0123456789abcdef";
    expect_equal(step_request(again)->join.identity, "0123456789abcdef0123456789abcdef");
    for (const char *const other :
         {"", "0123456789abcdef0123456789abcde", "0123456789abcdef0123456789abcdeF"}) {
        again.back() = fmt::format("SLURM_SINGULARITY_JOB={}", other);
        expect_contains(
            step_request(again).error().message(),
            fmt::format("SLURM_SINGULARITY_JOB={} is not what the job_submit plugin writes", other));
    }
    auto without = good();
    without[5] = "CUDA_VISIBLE_DEVICES=";
    assert_int_equal(step_request(without)->join.devices, 0);
    auto spread = good();
    spread[0] = "SINGULARITY_STEP_HOSTS=n1,n2,n3,n4";
    spread[1] = "SLURM_STEP_TASKS_PER_NODE=2(x3),1";
    assert_int_equal(step_request(spread)->join.ranks_here, 2);
    assert_int_equal(step_request(spread)->join.ranks, 7);
}

// One rank on its own host, whatever the allocation has beside it.
void a_script_that_is_saved_asks_as_a_step_of_one_task(void **) {
    const std::vector<std::string> environment{"SLURMD_NODENAME=n1",
                                               "SLURM_JOB_NUM_NODES=2",
                                               "SLURM_TASKS_PER_NODE=3(x2)",
                                               "SLURM_GPUS_ON_NODE=2",
                                               "CUDA_VISIBLE_DEVICES=0,1",
                                               "SLURM_RESTART_COUNT=3",
                                               "SLURM_CLUSTER_NAME=c",
                                               "SINGULARITY_STEP_EVERY=1800",
                                               "SINGULARITY_STEP_STORE=/shared/fast",
                                               "SLURM_SINGULARITY_JOB=0123456789abcdef0123456789abcdef"};
    const auto request = script_request(environment);
    assert_true(request.has_value());
    assert_true(request->join.hosts == std::vector<std::string>({"n1"}));
    assert_int_equal(request->join.node, 0);
    assert_int_equal(request->join.rank, 0);
    assert_int_equal(request->join.ranks_here, 1);
    assert_int_equal(request->join.ranks, 1);
    assert_int_equal(request->join.devices, 2);
    assert_int_equal(request->join.restarts, 3);
    assert_int_equal(request->join.every, 1800);
    assert_true(request->join.of_script);
    expect_equal(request->join.store, "/shared/fast");
    expect_equal(request->join.cluster, "c");
    expect_equal(request->join.identity, "0123456789abcdef0123456789abcdef");
    expect_contains(script_request({"HOME=/"}).error().message(), "SLURMD_NODENAME is not set");
    auto bad = environment;
    bad.emplace_back("SLURM_SINGULARITY_JOB=x");
    bad.erase(bad.end() - 2);
    expect_contains(script_request(bad).error().message(), "SLURM_SINGULARITY_JOB=x is not what");
}

// With the script, which knows the step by its own number.
void a_step_goes_on_with_its_script(void **) {
    auto environment = good();
    environment.insert(environment.end(),
                       {"SLURM_RESTART_COUNT=2", "SINGULARITY_STEP_EVERY=1800",
                        "SLURM_SINGULARITY_JOB=0123456789abcdef0123456789abcdef",
                        "SLURM_SINGULARITY_OF_SCRIPT=saved", "SLURM_SINGULARITY_GOES_ON=1234567890"});
    auto request = step_request(environment);
    assert_true(request.has_value());
    assert_true(request->join.of_script);
    assert_int_equal(request->join.restarts, 2);
    assert_int_equal(request->join.every, 0);
    expect_equal(request->join.identity, "0123456789abcdef0123456789abcdef");
    assert_int_equal(request->join.number, 1234567890);
    expect_equal(request->join.checkpoint, "");
    environment.back() += " 20261128T095620-50d2";
    request = step_request(environment);
    assert_int_equal(request->join.number, 1234567890);
    expect_equal(request->join.checkpoint, "20261128T095620-50d2");
    assert_int_equal(request->had, 0);
    environment.back() = "SLURM_SINGULARITY_GOES_ON=1234567890 the-checkpoint 0,0,700,12345678901";
    request = step_request(environment);
    expect_contains(request.error().message(), "only to 4 tasks on one host");
    auto on_one = std::move(environment);
    on_one[0] = "SINGULARITY_STEP_HOSTS=n1";
    on_one[1] = "SLURM_STEP_TASKS_PER_NODE=4";
    on_one[3] = "SLURM_NODEID=0";
    for (const auto &[rank, had] : {std::pair("2", 700LL), {"3", 12345678901LL}}) {
        on_one[2] = fmt::format("SLURM_PROCID={}", rank);
        request = step_request(on_one);
        assert_true(request.has_value());
        expect_equal(request->join.checkpoint, "the-checkpoint");
        assert_int_equal(request->had, had);
    }
    on_one.back() += "x";
    expect_contains(step_request(on_one).error().message(), "12345678901x in place of a number of bytes");
    environment = std::move(on_one);
    environment.back() = "SLURM_SINGULARITY_GOES_ON= x";
    expect_contains(step_request(environment).error().message(), "begins with no number");
}

// It goes on in its line, and begins such a step once: the step is neither restored nor saved by itself.
void a_step_of_a_script_that_is_saved_begins_once(void **) {
    auto environment = good();
    environment.insert(environment.end(), {"SLURM_RESTART_COUNT=2", "SINGULARITY_STEP_EVERY=1800",
                                           "SLURM_SINGULARITY_JOB=0123456789abcdef0123456789abcdef",
                                           "SLURM_SINGULARITY_OF_SCRIPT=again"});
    assert_true(step_request(environment)->join.of_script);
    assert_int_equal(step_request(environment)->join.restarts, 2);
    environment.back() = "SLURM_SINGULARITY_OF_SCRIPT=saved";
    const auto request = step_request(environment);
    assert_true(request.has_value());
    assert_false(request->join.of_script);
    assert_int_equal(request->join.restarts, 0);
    assert_int_equal(request->join.every, 0);
    expect_equal(request->join.identity, "");
}

void a_task_with_gpus_of_its_own_sees_those_of_its_place(void **) {
    auto bound = good();
    bound[4] = "SLURM_GPUS_ON_NODE=8";
    const auto request = step_request(bound);
    assert_true(request.has_value());
    assert_int_equal(request->join.devices, 8);
    expect_equal(request->visible_devices, "2,3");
}

void what_cannot_be_is_refused_with_the_way_out(void **) {
    struct Case {
        std::size_t at;
        const char *entry;
        const char *words;
    };
    const Case cases[] = {
        {0, "OTHER=x", "SINGULARITY_STEP_HOSTS is not set"},
        {1, "SLURM_STEP_TASKS_PER_NODE=3,x", "does not say how many tasks"},
        {1, "SLURM_STEP_TASKS_PER_NODE=3(x2", "does not say how many tasks"},
        {1, "SLURM_STEP_TASKS_PER_NODE=3(x4000000000)", "does not say how many tasks"},
        {1, "SLURM_STEP_TASKS_PER_NODE=3", "are not of 2 hosts"},
        {2, "OTHER=x", "SLURM_PROCID is not set"},
        {2, "SLURM_PROCID=-1", "SLURM_PROCID=-1 is not a whole number"},
        {3, "SLURM_NODEID=99999999999", "is not a whole number"},
        {1, "SLURM_STEP_TASKS_PER_NODE=0,4", "does not say how many tasks"},
        {4, "SLURM_GPUS_ON_NODE=3", "--gpus-per-task"},
        {5, "CUDA_VISIBLE_DEVICES=2,3", "ConstrainDevices=yes"},
    };
    for (const auto &test : cases) {
        auto environment = good();
        environment[test.at] = test.entry;
        const auto request = step_request(environment);
        assert_false(request.has_value());
        expect_contains(request.error().message(), test.words);
    }
}

// What one wrapper has been told.
struct Told {
    std::string packet;
    bool left = false;
    std::string cgroups = {};

    [[nodiscard]] Responder responder() {
        return {.token = 1,
                .answer = [this](const std::string &bytes, std::span<const int>) { packet = bytes; }};
    }
    [[nodiscard]] Step::Wrapper wrapper() {
        return {.cgroups = cgroups,
                .left = [this] { return left; },
                .responder = responder(),
                .waiter = {},
                .told = false};
    }
    template <class Reply>
    [[nodiscard]] std::optional<Reply> take() {
        return node::decode<Reply>(std::exchange(packet, {}));
    }
};

JoinStep plan(std::uint32_t rank) {
    JoinStep out;
    out.hosts = {"n1", "n2"};
    out.node = 1;
    out.ranks = 4;
    out.ranks_here = 2;
    out.rank = rank;
    return out;
}

const Step::User kUser{.uid = 1001, .gid = 1001, .groups = {27}};

struct Two {
    Told two, three;
    Step step{"47.0", kUser, "0::/step\n", plan(2), Deadline::after(10s)};

    void join() {
        assert_true(step.join(plan(2), {}, two.wrapper()).has_value());
        assert_false(step.complete());
        assert_true(step.join(plan(3), {}, three.wrapper()).has_value());
        assert_true(step.complete());
    }
    void run() {
        join();
        assert_true(step.become("u1001-j000001", kUser).has_value());
        step.started(2, {.node = "a", .task = 1});
        step.started(3, {.node = "a", .task = 2});
        assert_int_equal(two.take<singularity::agent::Joined>()->task, 1);
        assert_int_equal(three.take<singularity::agent::Joined>()->task, 2);
        step.wait(2, two.responder());
        step.wait(3, three.responder());
    }
};

void a_rank_is_where_its_task_is(void **) {
    Two one;
    one.two.cgroups = "0::/task_0\n";
    one.three.cgroups = "0::/task_1\n";
    one.join();
    expect_equal(one.step.cgroups_of(2), "0::/task_0\n");
    expect_equal(one.step.cgroups_of(3), "0::/task_1\n");
    expect_equal(one.step.cgroups_of(4), "0::/step\n");
    one.three.left = true;
    one.step.look_at_wrappers([](const Step::Place &) {});
    expect_equal(one.step.cgroups_of(3), "0::/step\n");
}

void tasks_must_agree(void **) {
    Two one;
    one.join();
    Told more;
    assert_false(one.step.join(plan(2), {}, more.wrapper()).has_value());
    Step other{"47.0", kUser, "", plan(2), Deadline::after(10s)};
    auto differs = plan(2);
    differs.devices = 1;
    expect_contains(other.join(differs, {}, more.wrapper()).error().message(), "says something else");
    auto published = plan(2);
    published.publish = {6006};
    expect_contains(other.join(published, {}, more.wrapper()).error().message(),
                    "image, published ports, store");
    auto in_image = plan(2);
    in_image.image.directory = "/image";
    expect_contains(other.join(in_image, {}, more.wrapper()).error().message(), "says something else");
    // Each has asked its name service by itself, which may know a group one moment and not the next.
    Step of_image{"47.0", kUser, "", in_image, Deadline::after(10s)};
    in_image.image.groups = {"staff:x:50:"};
    assert_true(of_image.join(in_image, {}, more.wrapper()).has_value());
    expect_contains(one.step.join(plan(1), {}, more.wrapper()).error().message(), "all of its 2 tasks");
}

// What its tasks bring waits in the agent's memory; who is refused may come again.
void what_tasks_bring_has_a_limit(void **) {
    using singularity::agent::ProgramMemory;
    constexpr std::size_t kMost = std::size_t{1} << 30; // per_user.program_mib
    const auto bring = [] {
        Step::Brought out;
        out.program.environment = {std::string(1000, 'x')};
        return out;
    };
    Step step{"47.0", kUser, "", plan(2), Deadline::after(10s)};
    Told two;
    {
        const auto others = ProgramMemory::count(kUser.uid, kMost - 1000);
        const auto refused = step.join(plan(2), bring(), two.wrapper());
        assert_false(refused.has_value());
        assert_int_equal(refused.error().code, EDQUOT);
    }
    assert_true(step.join(plan(2), bring(), two.wrapper()).has_value());
    const auto refused = ProgramMemory::take(kUser.uid, kMost);
    assert_false(refused.has_value());
    Told three;
    assert_true(step.join(plan(3), {}, three.wrapper()).has_value());
    {
        const auto brought = step.take(2); // to be started
        assert_true(brought.has_value());
        assert_false(ProgramMemory::take(kUser.uid, kMost).has_value());
    }
    assert_true(ProgramMemory::take(kUser.uid, kMost).has_value());
}

void a_step_becomes_a_job_of_its_own_user_once(void **) {
    Two one;
    one.join();
    assert_false(one.step.become("u1002-j000001", {.uid = 1002, .gid = 1001, .groups = {}}).has_value());
    assert_false(one.step.become("u1001-j000001", {.uid = 1001, .gid = 1001, .groups = {0}}).has_value());
    assert_true(one.step.become("u1001-j000001", {.uid = 1001, .gid = 1001, .groups = {27}}).has_value());
    assert_false(one.step.become("u1001-j000002", kUser).has_value());
    Told late;
    assert_false(one.step.join(plan(2), {}, late.wrapper()).has_value());
}

void the_last_one_that_is_well_waits_for_the_job(void **) {
    Two one;
    one.run();
    one.step.ended(2, 0);
    assert_int_equal(one.two.take<singularity::agent::RankEnded>()->status, 0);
    one.step.ended(3, 0);
    assert_true(one.three.packet.empty());
    one.step.finish("");
    const auto ended = one.three.take<singularity::agent::RankEnded>();
    assert_int_equal(ended->status, 0);
    expect_equal(ended->trouble, "");
}

void who_fails_does_not_wait(void **) {
    Two one;
    one.run();
    one.step.ended(2, 0);
    one.step.ended(3, 3 << 8);
    assert_int_equal(one.three.take<singularity::agent::RankEnded>()->status, 3 << 8);
}

using Lines = std::vector<std::string>;

void what_a_user_must_know_is_said_by_one_task(void **) {
    Two one;
    one.run();
    one.step.say("it cannot be saved");
    const auto told = one.two.take<singularity::agent::RankEnded>();
    assert_true(told->news == Lines{"it cannot be saved"});
    assert_true(one.three.packet.empty());
    // It says one after the other, and then hears of its end.
    one.step.say("nor moved");
    one.step.say("nor resized");
    one.step.ended(2, 0);
    assert_true(one.two.packet.empty() && one.three.packet.empty());
    one.step.wait(2, one.two.responder());
    assert_true(one.two.take<singularity::agent::RankEnded>()->news == (Lines{"nor moved", "nor resized"}));
    one.step.wait(2, one.two.responder());
    const auto ended = one.two.take<singularity::agent::RankEnded>();
    assert_int_equal(ended->status, 0);
    assert_true(ended->news.empty());
}

void another_task_says_it_when_the_first_has_left(void **) {
    Two one;
    one.join();
    one.step.say("early"); // no task runs yet
    assert_true(one.two.packet.empty() && one.three.packet.empty());
    one.two.left = true;
    one.step.wait(3, one.three.responder());
    assert_true(one.three.packet.empty());
    one.step.look_at_wrappers([](const Step::Place &) {});
    assert_true(one.three.take<singularity::agent::RankEnded>()->news == Lines{"early"});
    // Of lines that nobody says not every one is kept.
    for (int number = 0; number < 100; ++number)
        one.step.say("more");
    one.step.wait(3, one.three.responder());
    assert_int_equal(one.three.take<singularity::agent::RankEnded>()->news.size(), 16);
}

using Pairs = std::map<std::uint32_t, std::uint32_t>;

void ranks_find_tasks_wherever_they_are(void **) {
    using singularity::agent::pair_ranks;
    assert_true(pair_ranks({2, 3}, {2, 3}) == (Pairs{{2, 2}, {3, 3}}));
    assert_true(pair_ranks({2, 3}, {0, 2}) == (Pairs{{2, 2}, {3, 0}}));
    assert_true(pair_ranks({0, 1, 2, 3}, {4, 5}) == (Pairs{{0, 4}, {1, 5}, {2, 4}, {3, 5}}));
    assert_true(pair_ranks({}, {4, 5}).empty());
}

void a_task_that_stands_for_two_ends_with_both(void **) {
    Two one;
    one.join();
    assert_true(one.step.become("u1001-s47-0", kUser).has_value());
    one.step.bind({{0, 2}, {1, 2}});
    one.step.start_idle();
    assert_true(one.three.take<singularity::agent::Joined>()->node.empty());
    one.step.started(0, {.node = "a", .task = 1});
    assert_true(one.two.packet.empty());
    one.step.started(1, {.node = "b", .task = 1});
    expect_equal(one.two.take<singularity::agent::Joined>()->node, "a");
    assert_int_equal(one.step.places_of(2).size(), 2);
    one.step.wait(2, one.two.responder());
    one.step.wait(3, one.three.responder());
    one.step.ended(0, 0);
    assert_true(one.two.packet.empty());
    one.step.ended(1, 5 << 8);
    assert_int_equal(one.two.take<singularity::agent::RankEnded>()->status, 5 << 8);
    assert_true(one.three.packet.empty());
    one.step.finish("");
    assert_int_equal(one.three.take<singularity::agent::RankEnded>()->status, 0);
}

void who_is_told_to_end_hears_it_when_that_is_decided(void **) {
    Two one;
    one.run();
    assert_false(one.step.is_told_to_end());
    one.step.told_to_end(3);
    one.step.told_to_end(3);
    assert_true(one.step.is_told_to_end());
    const auto places = one.step.take_told_to_end();
    assert_int_equal(places.size(), 1);
    assert_int_equal(places[0].task, 2);
    assert_false(one.step.is_told_to_end());
}

void a_saved_step_ends_without_a_word(void **) {
    Two one;
    one.run();
    one.step.told_to_end(2);
    one.step.finish("", {.saved = true, .ends = {}});
    for (Told *const told : {&one.two, &one.three}) {
        const auto ended = told->take<singularity::agent::RankEnded>();
        assert_int_equal(ended->status, 0);
        expect_equal(ended->trouble, "");
    }
    assert_false(one.step.is_told_to_end());
}

// They come within moments, and nobody else can tell them what has become of their ranks.
void a_step_of_an_earlier_agent_that_ends_waits_for_its_wrappers(void **) {
    Told two;
    Told three;
    Step step("47.0", "u1001-s47-0", Deadline::after(10s));
    step.bind({{2, 2}, {3, 3}});
    step.started(2, {.node = "a", .task = 1});
    step.started(3, {.node = "b", .task = 1});
    assert_true(step.join_again(2, two.wrapper()).has_value());
    two.left = true;
    step.finish("", {.saved = true, .ends = {}});
    step.look_at_wrappers([](const Step::Place &) {});
    assert_false(step.over());
    assert_true(step.join_again(3, three.wrapper()).has_value());
    assert_true(three.take<singularity::agent::Joined>().has_value());
    step.wait(3, three.responder());
    assert_int_equal(three.take<singularity::agent::RankEnded>()->status, 0);
    three.left = true;
    step.look_at_wrappers([](const Step::Place &) {});
    assert_true(step.over());
}

void who_does_not_come_again_is_not_waited_for(void **) {
    Step step("47.0", "u1001-s47-0", Deadline::after(0s));
    step.bind({{2, 2}});
    step.started(2, {.node = "a", .task = 1});
    assert_false(step.over());
    step.finish("");
    assert_true(step.over());
}

void slurms_words_are_understood(void **) {
    using singularity::agent::goes_on_later;
    using singularity::agent::parse_slurm_job;
    using Fate = singularity::agent::SlurmJob::Fate;
    const auto job = parse_slurm_job("job=47\nbatch=yes\nmay_requeue=yes\nbatch_host=n2\nfate=preempted\n");
    assert_true(job.has_value() && job->fate == Fate::preempted && goes_on_later(*job));
    expect_equal(job->batch_host, "n2");
    assert_false(goes_on_later(*parse_slurm_job("batch=yes\nmay_requeue=no\nfate=timeout\n")));
    assert_true(goes_on_later(*parse_slurm_job("fate=requeued\n")));
    assert_false(goes_on_later(*parse_slurm_job("batch=yes\nmay_requeue=yes\nfate=terminated\n")));
    assert_false(goes_on_later(*parse_slurm_job("batch=yes\nmay_requeue=yes\nfate=stays\n")));
    assert_false(parse_slurm_job("batch=yes\nfate=other\n").has_value());
    assert_false(parse_slurm_job("").has_value());
    assert_int_equal(*singularity::agent::job_of_step("47.3"), 47);
    for (const char *const bad : {"", ".0", "x.0", "0.1", "99999999999.0"})
        assert_false(singularity::agent::job_of_step(bad).has_value());
}

void an_ended_job_is_told_with_its_reason(void **) {
    Two one;
    one.run();
    one.step.finish("host n1 has not been heard of");
    const auto ended = one.two.take<singularity::agent::RankEnded>();
    assert_int_equal(ended->status, SIGKILL);
    expect_contains(ended->trouble, "host n1");
    assert_false(one.step.over());
    one.two.left = one.three.left = true;
    one.step.look_at_wrappers(
        [](const Step::Place &) { singularity::test::fail("the job has ended already"); });
    assert_true(one.step.over());
}

void ranks_of_wrappers_that_leave_are_abandoned(void **) {
    Two one;
    one.run();
    one.three.left = true;
    std::vector<std::uint32_t> abandoned;
    for (int times = 0; times < 2; ++times)
        one.step.look_at_wrappers([&](const Step::Place &place) { abandoned.push_back(place.task); });
    assert_true(abandoned == std::vector<std::uint32_t>{2});
}

void who_waits_in_vain_is_told(void **) {
    Told alone;
    Step step{"47.0", kUser, "", plan(2), Deadline::after(0s)};
    assert_true(step.join(plan(2), {}, alone.wrapper()).has_value());
    step.look_at_wrappers([](const Step::Place &) { singularity::test::fail("nothing runs"); });
    expect_contains(alone.take<singularity::agent::Failed>()->why, "only 1 of its 2 tasks here");
    assert_true(step.over());
}

void a_task_that_leaves_before_the_start_may_come_again(void **) {
    Two one;
    one.join();
    one.two.left = true;
    one.step.look_at_wrappers([](const Step::Place &) { singularity::test::fail("nothing runs"); });
    assert_false(one.step.complete());
    Told again;
    assert_true(one.step.join(plan(2), {}, again.wrapper()).has_value());
}

// Also where it had not read what was said to it: that is another error of the kernel's.
void an_agent_that_has_died_has_gone(void **) {
    std::string directory = "/tmp/agent-XXXXXX";
    assert_non_null(mkdtemp(directory.data()));
    const auto path = directory + "/agent.sock";
    auto listener = singularity::listen_unix(path, 0600, 1);
    assert_true(listener.has_value());
    for (const bool read : {true, false}) {
        auto client = singularity::agent::Client::connect(path);
        assert_true(client.has_value());
        singularity::UniqueFd other(accept(listener->get(), nullptr, nullptr));
        assert_true(client->send(singularity::agent::List{}).has_value());
        node::Packet packet;
        if (read)
            assert_true(node::receive_packet(other.get(), packet) == node::Received::packet);
        other.reset();
        const auto sent = client->send(singularity::agent::List{});
        assert_false(sent.has_value());
        assert_int_equal(sent.error().code, EPIPE);
    }
    unlink(path.c_str());
    rmdir(directory.c_str());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_known_by_its_cgroups),
        cmocka_unit_test(a_step_is_where_slurm_makes_it),
        cmocka_unit_test(a_script_is_known_by_its_cgroups),
        cmocka_unit_test(what_is_the_steps_is_not_one_tasks),
        cmocka_unit_test(a_task_has_its_own_cgroups_but_for_devices),
        cmocka_unit_test(a_rank_is_where_its_task_is),
        cmocka_unit_test(what_a_user_must_know_is_said_by_one_task),
        cmocka_unit_test(another_task_says_it_when_the_first_has_left),
        cmocka_unit_test(ranks_find_tasks_wherever_they_are),
        cmocka_unit_test(a_task_that_stands_for_two_ends_with_both),
        cmocka_unit_test(who_is_told_to_end_hears_it_when_that_is_decided),
        cmocka_unit_test(a_saved_step_ends_without_a_word),
        cmocka_unit_test(a_step_of_an_earlier_agent_that_ends_waits_for_its_wrappers),
        cmocka_unit_test(who_does_not_come_again_is_not_waited_for),
        cmocka_unit_test(slurms_words_are_understood),
        cmocka_unit_test(a_task_says_what_slurm_has_told_it),
        cmocka_unit_test(a_script_that_is_saved_asks_as_a_step_of_one_task),
        cmocka_unit_test(a_step_goes_on_with_its_script),
        cmocka_unit_test(a_step_of_a_script_that_is_saved_begins_once),
        cmocka_unit_test(a_task_with_gpus_of_its_own_sees_those_of_its_place),
        cmocka_unit_test(what_cannot_be_is_refused_with_the_way_out),
        cmocka_unit_test(tasks_must_agree),
        cmocka_unit_test(what_tasks_bring_has_a_limit),
        cmocka_unit_test(a_step_becomes_a_job_of_its_own_user_once),
        cmocka_unit_test(the_last_one_that_is_well_waits_for_the_job),
        cmocka_unit_test(who_fails_does_not_wait),
        cmocka_unit_test(an_ended_job_is_told_with_its_reason),
        cmocka_unit_test(ranks_of_wrappers_that_leave_are_abandoned),
        cmocka_unit_test(who_waits_in_vain_is_told),
        cmocka_unit_test(an_agent_that_has_died_has_gone),
        cmocka_unit_test(a_task_that_leaves_before_the_start_may_come_again),
    };
    return cmocka_run_group_tests_name("steps", tests, nullptr, nullptr);
}
