// SPDX-License-Identifier: GPL-2.0-or-later
#include "report.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace singularity::planner {

namespace {

constexpr std::array kTiers{policy::Tier::kPremium, policy::Tier::kStandard, policy::Tier::kBasic};
constexpr std::array kKinds{policy::ActionKind::kStart, policy::ActionKind::kShrink,
                            policy::ActionKind::kGrow, policy::ActionKind::kMigrate,
                            policy::ActionKind::kYield};

policy::Fraction life_of(const policy::Job &job) { return policy::Ledger::fraction(job.work, job.elapsed); }
policy::Fraction hour_of(const policy::Job &job) {
    return policy::Ledger::fraction(job.hour_work, job.hour_elapsed);
}

std::uint64_t held_by(const policy::Job &job, const policy::Snapshot &snapshot) {
    std::uint64_t out = 0;
    for (const auto &share : snapshot.shares_of(job))
        out += share.gpus;
    return out;
}

std::string_view state_of(const policy::Job &job) {
    switch (job.state) {
    case policy::JobState::kPending:
        return "waits";
    case policy::JobState::kRunning:
        return "runs";
    default:
        return "moves";
    }
}

double percent(policy::Fraction fraction) {
    return static_cast<double>(fraction) * 100 / static_cast<double>(policy::kOne);
}

std::string sizes_in_words(std::span<const policy::Size> sizes) {
    return sizes.size() == 1 ? fmt::format("{}", sizes.front().gpus)
                             : fmt::format("{}-{}", sizes.front().gpus, sizes.back().gpus);
}

// Relative to its largest size, in percent.
std::string speed_of(const policy::Job &job, const policy::Snapshot &snapshot) {
    const auto sizes = snapshot.sizes_of(job);
    return job.state == policy::JobState::kPending || job.size >= sizes.size()
               ? "-"
               : fmt::format("{:.0f}", percent(sizes[job.size].speed));
}

std::uint64_t capacity_of(const policy::Snapshot &snapshot) {
    std::uint64_t out = 0;
    for (const auto &node : snapshot.nodes)
        out += node.gpus;
    return out;
}

std::string under_switches(std::span<const slurm::Node *const> nodes) {
    std::set<std::string_view> leaves;
    for (const auto *const node : nodes)
        leaves.insert(node->leaf);
    return leaves.size() > 1 ? fmt::format(" under {} leaf switches", leaves.size()) : std::string();
}

std::uint64_t used_of(const policy::Snapshot &snapshot) {
    std::uint64_t out = 0;
    for (const auto &job : snapshot.jobs)
        out += held_by(job, snapshot);
    return out;
}

// Of one tier, over all pools.
struct Sum {
    std::uint64_t jobs = 0;
    std::uint64_t kept = 0; // its guarantee, over life and hour
    std::uint64_t gpus = 0;
    double fractions = 0;
};

std::array<Sum, policy::kTiers> by_tier(const Outlook &outlook, const policy::Rules &rules) {
    std::array<Sum, policy::kTiers> out{};
    for (const auto &pool : outlook.pools)
        for (const auto &job : pool.snapshot.jobs) {
            auto &sum = out[static_cast<std::size_t>(job.tier)];
            ++sum.jobs;
            sum.gpus += held_by(job, pool.snapshot);
            sum.fractions += percent(life_of(job)) / 100;
            const auto guarantee = rules.of(job.tier).guarantee;
            if (life_of(job) >= guarantee && hour_of(job) >= guarantee)
                ++sum.kept;
        }
    return out;
}

void tell_pool(const Pool &pool, const policy::Plan &plan, const policy::Rules &rules, std::string &out) {
    const auto &snapshot = pool.snapshot;
    fmt::format_to(std::back_inserter(out), "\n{} nodes{}, {} GPUs, {} given away; {} idle after this plan\n",
                   snapshot.nodes.size(), under_switches(pool.nodes), capacity_of(snapshot),
                   used_of(snapshot), plan.idle_gpus);
    if (!snapshot.jobs.empty())
        fmt::format_to(std::back_inserter(out),
                       "{:>10} {:<9} {:<6} {:>6} {:>9} {:>7} {:>7} {:>7} {:>9} {:>6}\n", "JOB", "TIER",
                       "STATE", "GPUS", "SIZES", "SPEED %", "LIFE %", "HOUR %", "PROMISED", "MOVES");
    for (const auto &job : snapshot.jobs)
        fmt::format_to(std::back_inserter(out),
                       "{:>10} {:<9} {:<6} {:>6} {:>9} {:>7} {:>7.1f} {:>7.1f} {:>9.0f} {:>6}\n", job.id,
                       policy::name_of(job.tier), state_of(job), held_by(job, snapshot),
                       sizes_in_words(snapshot.sizes_of(job)), speed_of(job, snapshot), percent(life_of(job)),
                       percent(hour_of(job)), percent(rules.of(job.tier).guarantee), job.hour_moves);
    for (const auto &action : plan.actions)
        fmt::format_to(std::back_inserter(out), "plan: {}\n", policy::describe(action, snapshot));
    for (const auto &wait : plan.waits)
        fmt::format_to(std::back_inserter(out), "{}\n", policy::describe(wait, snapshot));
    if (const auto defect = policy::defect_of(snapshot); !defect.empty())
        fmt::format_to(std::back_inserter(out), "nothing is planned: {}\n", defect);
}

class Page {
  public:
    void family(std::string_view name, std::string_view type, std::string_view help) {
        name_ = name;
        fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    }
    void sample(std::string_view labels, auto value) {
        const auto in_braces = labels.empty() ? std::string() : fmt::format("{{{}}}", labels);
        fmt::format_to(std::back_inserter(text_), "{}{} {}\n", name_, in_braces, value);
    }
    [[nodiscard]] std::string take() { return std::move(text_); }

  private:
    std::string_view name_;
    std::string text_;
};

std::string tier_label(policy::Tier tier) { return fmt::format(R"(tier="{}")", policy::name_of(tier)); }

void tell_jobs(Page &page, const Outlook &outlook, const policy::Rules &rules) {
    std::vector<const policy::Job *> all;
    for (const auto &pool : outlook.pools)
        for (const auto &job : pool.snapshot.jobs)
            all.push_back(&job);
    const auto above = [&](const policy::Job *job) { return life_of(*job) - rules.of(job->tier).guarantee; };
    std::ranges::sort(all, [&](const auto *one, const auto *other) {
        return std::pair(above(one), one->id) < std::pair(above(other), other->id);
    });
    const std::span shown(all.data(), std::min(all.size(), kShownJobs));
    page.family("singularity_planner_job_gpu_fraction", "gauge",
                "T_ideal / T_real of a job since it became eligible; those furthest below their guarantee.");
    for (const auto *const job : shown)
        page.sample(fmt::format(R"(job="{}",{})", job->id, tier_label(job->tier)),
                    percent(life_of(*job)) / 100);
}

} // namespace

std::string words(const Outlook &outlook, const Thought &thought, const policy::Rules &rules) {
    std::string out = fmt::format("looked at {:%Y-%m-%d %H:%M:%S} UTC, planned in {:.1f} ms{}\n",
                                  fmt::gmtime(thought.when), static_cast<double>(thought.planning_us) / 1000,
                                  thought.dry_run ? "; nothing is carried out (--dry-run)" : "");
    for (std::size_t i = 0; i < outlook.pools.size(); ++i)
        tell_pool(outlook.pools[i], thought.plans[i], rules, out);
    for (const auto &left : outlook.left)
        fmt::format_to(std::back_inserter(out), "job {} is left alone: {}\n", left.job->id, left.why);
    return out;
}

std::string metrics(const Outlook &outlook, const Thought &thought, const Done &done,
                    const policy::Rules &rules) {
    Page page;
    const auto sums = by_tier(outlook, rules);
    const auto per_tier = [&](std::string_view name, std::string_view help, auto value) {
        page.family(name, "gauge", help);
        for (const auto tier : kTiers)
            page.sample(tier_label(tier), value(sums[static_cast<std::size_t>(tier)]));
    };
    per_tier("singularity_planner_jobs", "Jobs that are planned for.",
             [](const Sum &sum) { return sum.jobs; });
    per_tier("singularity_planner_jobs_above_guarantee",
             "Of them, those that have had at least what was promised, over their life and the last hour.",
             [](const Sum &sum) { return sum.kept; });
    per_tier("singularity_planner_gpus", "GPUs that they hold.", [](const Sum &sum) { return sum.gpus; });
    per_tier(
        "singularity_planner_gpu_fraction", "Mean of their GPU fractions since they became eligible.",
        [](const Sum &sum) { return sum.jobs == 0 ? 1.0 : sum.fractions / static_cast<double>(sum.jobs); });
    tell_jobs(page, outlook, rules);
    std::uint64_t idle = 0;
    std::uint64_t capacity = 0;
    for (const auto &pool : outlook.pools) {
        capacity += capacity_of(pool.snapshot);
        idle += capacity_of(pool.snapshot) - used_of(pool.snapshot);
    }
    page.family("singularity_planner_cluster_gpus", "gauge", "GPUs of nodes that are up.");
    page.sample("", capacity);
    page.family("singularity_planner_idle_gpus", "gauge", "Those that no job holds.");
    page.sample("", idle);
    page.family("singularity_planner_jobs_left_alone", "gauge", "Jobs with GPUs that are not planned for.");
    page.sample("", outlook.left.size());
    page.family("singularity_planner_looks_total", "counter", "Looks at the cluster, each with a plan.");
    page.sample("", thought.looks);
    page.family("singularity_planner_asking_seconds", "gauge", "What slurmctld took to answer, last time.");
    page.sample("", static_cast<double>(thought.asking_us) / 1e6);
    page.family("singularity_planner_planning_seconds", "gauge", "What the last plan took.");
    page.sample("", static_cast<double>(thought.planning_us) / 1e6);
    page.family("singularity_planner_acting_seconds", "gauge",
                "What slurmctld took to be told of what the last plan decided.");
    page.sample("", static_cast<double>(thought.acting_us) / 1e6);
    page.family("singularity_planner_looked_timestamp_seconds", "gauge", "When it last looked.");
    page.sample("", thought.when);
    page.family("singularity_planner_actions_total", "counter",
                "What was begun; of starts, those it has changed.");
    for (const auto kind : kKinds)
        page.sample(fmt::format(R"(kind="{}")", policy::name_of(kind)),
                    done.actions[static_cast<std::size_t>(kind)]);
    page.family("singularity_planner_failures_total", "counter", "What slurmctld has refused.");
    page.sample("", done.failed);
    return page.take();
}

} // namespace singularity::planner
