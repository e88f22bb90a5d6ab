// SPDX-License-Identifier: GPL-2.0-or-later
// What holds of every simulation, on random clusters and traces with failing nodes, for every policy: no GPU
// is given to two jobs or used while its node is down, every GPU second is accounted for, every job ends, the
// same seed gives the same bytes.
#include "failures.hpp"
#include "picture.hpp"
#include "report.hpp"
#include "simulator_helpers.hpp"
#include "statistics.hpp"

#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace {

using namespace singularity;
using namespace singularity::simulator;

constexpr std::string_view kSmall = R"(
cluster: {nodes: 3, gpus_per_node: 8}
failures: {mean_time_between: 20h, repair: 1h}
planning: {period: 10s, longest: 1m}
)";

class Draw {
  public:
    explicit Draw(std::uint64_t seed) : seed_(seed) {}
    std::int64_t below(std::int64_t most) {
        return static_cast<std::int64_t>(mixed(mixed(seed_) + count_++) % static_cast<std::uint64_t>(most));
    }

  private:
    std::uint64_t seed_;
    std::uint64_t count_ = 0;
};

std::vector<TraceJob> random_trace(std::uint64_t seed) {
    // 48 GPUs fit no cluster of 24 unless they can be shared.
    constexpr std::array<std::int32_t, 8> kGangs{1, 1, 2, 4, 8, 12, 16, 48};
    Draw draw(seed);
    std::vector<TraceJob> trace;
    Time submit = 0;
    for (std::int64_t id = 0; id < 60; ++id) {
        submit += draw.below(1200) * kSecond;
        trace.push_back({id, submit, (1 + draw.below(10000)) * kSecond,
                         kGangs[static_cast<std::size_t>(draw.below(8))], std::nullopt});
    }
    return trace;
}

// Looks at the whole cluster after every plan.
class Checked final : public Scheduler {
  public:
    explicit Checked(std::unique_ptr<Scheduler> inner) : inner_(std::move(inner)) {}
    Time plan(World &world) override {
        const Time wake = inner_->plan(world);
        std::vector<std::int32_t> held(static_cast<std::size_t>(world.pool().nodes()));
        for (const Job &job : world.jobs()) {
            std::int32_t sum = 0;
            for (const Share &share : job.placement) {
                held[static_cast<std::size_t>(share.node)] += share.gpus;
                sum += share.gpus;
                assert_true(world.pool().is_up(share.node));
            }
            assert_int_equal(sum, job.gpus);
            assert_true(job.state == simulator::JobState::kRunning
                            ? job.gpus >= job.minimum && job.gpus <= job.demand
                            : job.gpus == 0);
        }
        for (std::int32_t node = 0; node < world.pool().nodes(); ++node) {
            const std::int32_t there = world.pool().is_up(node) ? world.pool().gpus_per_node() : 0;
            assert_int_equal(held[static_cast<std::size_t>(node)] + world.pool().free_on(node), there);
        }
        ++plans;
        return wake;
    }
    [[nodiscard]] std::int32_t least_of(const Job &job) const override { return inner_->least_of(job); }
    void waits(const World &world, JobIndex job) override { inner_->waits(world, job); }
    void left(const World &world, JobIndex job) override { inner_->left(world, job); }
    void changes(const World &world, JobIndex job) override { inner_->changes(world, job); }

    int plans = 0;

  private:
    std::unique_ptr<Scheduler> inner_;
};

void expect_close(double a, double b, std::string_view what, std::string_view policy) {
    if (std::abs(a - b) > 1e-6 * std::max(1.0, std::abs(b)))
        test::fail(fmt::format("{}: {}: {} is not {}", policy, what, a, b));
}

void check(const World &world, std::string_view policy) {
    const Statistics result = statistics_of(world, std::string(policy), {0.95, 0.7, 0});
    double held = 0;
    double work = 0;
    for (const Job &job : world.jobs()) {
        held += job.held;
        expect_close(job.useful + job.lost_moving + job.lost_splicing + job.lost_again, job.held,
                     "parts of a job's GPU time", policy);
        assert_true(job.lost_moving >= 0 && job.lost_splicing >= -1e-3 * 48 && job.lost_again >= 0);
        if (job.state != simulator::JobState::kFinished)
            continue;
        assert_true(job.end >= job.submit + job.duration);
        expect_close(job.useful, static_cast<double>(job.duration) * job.demand,
                     "useful work of a finished job", policy);
        work += job.useful;
    }
    constexpr double kHourly = 3.6e6;
    const GpuTime &time = result.time;
    expect_close(held / kHourly, time.held, "held by jobs, and by the cluster's account", policy);
    expect_close(work / kHourly, time.useful, "useful work", policy);
    expect_close(time.useful + time.lost_moving + time.lost_splicing + time.lost_again, time.held,
                 "parts of what is held", policy);
    expect_close(time.down + time.idle + time.held + time.releasing, time.total, "all GPU time", policy);
    assert_true(time.idle >= -1e-6);
    assert_true(time.releasing >= 0);
    assert_int_equal(result.unfinished, 0);
    assert_int_equal(result.finished + result.rejected, world.jobs().size());
}

void everything_is_accounted_for(void ** /*state*/) {
    const std::uint64_t seeds = test::is_short() ? 5 : 40;
    for (const PolicyName &policy : policies()) {
        std::uint64_t failures = 0;
        std::uint64_t interrupted = 0;
        for (std::uint64_t seed = 0; seed < seeds; ++seed) {
            const auto trace = random_trace(seed);
            World world(test::description(kSmall), trace, seed);
            Checked scheduler(policy.make(test::default_rules()));
            world.run(scheduler);
            assert_true(scheduler.plans > 0);
            check(world, policy.name);
            failures += world.failures();
            for (const Job &job : world.jobs())
                interrupted += job.moves + job.kills;
        }
        // Otherwise the test has not seen what it is about.
        assert_true(failures > 0);
        assert_true(interrupted > 0);
    }
}

void same_seed_same_bytes(void ** /*state*/) {
    const auto trace = random_trace(7);
    const Setting setting{test::description(kSmall), test::default_rules(), 7};
    const auto all = [&trace](const Setting &with) {
        std::vector<Statistics> results;
        for (const PolicyName &policy : policies())
            results.push_back(simulate(with, trace, policy));
        const Origin origin{"random", "1x1", trace.size(), with.seed, with.description};
        return json_of(origin, results) + table_of(origin, results) + utilisation_picture(results) +
               completion_picture(results) + fraction_picture(results);
    };
    const std::string first = all(setting);
    test::expect_equal(all(setting), first);
    assert_true(all({setting.description, setting.rules, 8}) != first);
}

// Failures are the seed's alone: what a policy does must not change them.
void all_policies_see_the_same_failures(void ** /*state*/) {
    Failures one(3, 20 * kHour, 5);
    Failures other(3, 20 * kHour, 5);
    const Time first = one.next(2);
    assert_true(one.next(0) != first);
    assert_true(other.next(2) == first);
    Failures none(3, 0, 5);
    assert_true(none.next(0) == kNever);
    // Exponential with the mean that was asked for, within 5 %.
    double sum = 0;
    for (int i = 0; i < 4000; ++i)
        sum += static_cast<double>(one.next(1));
    assert_true(std::abs(sum / 4000 / (20.0 * kHour) - 1) < 0.05);
}

void tiers_follow_the_mix(void ** /*state*/) {
    std::vector<TraceJob> trace(20000);
    for (std::size_t i = 0; i < trace.size(); ++i)
        trace[i] = {static_cast<std::int64_t>(i), 0, kSecond, 1, std::nullopt};
    const World world(test::description("tiers: {mix: 10/60/30}\ncluster: {nodes: 1}\n"), trace, 3);
    std::array<double, kTiers> found{};
    for (const Job &job : world.jobs())
        found[index_of(job.tier)] += 1.0 / 20000;
    assert_true(std::abs(found[0] - 0.1) < 0.01);
    assert_true(std::abs(found[1] - 0.6) < 0.01);
    assert_true(std::abs(found[2] - 0.3) < 0.01);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_accounted_for),
        cmocka_unit_test(same_seed_same_bytes),
        cmocka_unit_test(all_policies_see_the_same_failures),
        cmocka_unit_test(tiers_follow_the_mix),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
