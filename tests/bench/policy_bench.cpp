// SPDX-License-Identifier: GPL-2.0-or-later
// How long a plan takes: policy-bench GPUS [REPEATS] prints one line of "key value" pairs, times in
// milliseconds, each the median of its repeats. A cluster of 8-GPU nodes, 32 under a leaf, 9 of 10 GPUs in
// use, with 10,000 running and 5,000 pending jobs for every 100,000 GPUs, in the sizes of the ITP trace.
//
//     full     the queue and the cluster as they are, the three tiers mixed
//     quiet    nothing pending and nothing to do
//     gang     a premium gang of 92 % of the cluster against basic jobs
#include "policy_random.hpp"

#include <chrono>
#include <cstdlib>
#include <iterator>

#include <fmt/format.h>

namespace {

using namespace singularity::policy;
using testing::Random;

constexpr std::uint32_t kGpus = 8;
constexpr std::uint32_t kNodesOfLeaf = 32;

// By per cent of the jobs: (GPUs, block). The mean demand is 9 GPUs.
struct Kind {
    std::uint32_t percent, gpus, block;
};
constexpr Kind kKinds[] = {{40, 1, 1}, {10, 2, 2}, {10, 4, 4}, {28, 8, 8},
                           {7, 16, 8}, {3, 32, 8}, {2, 64, 8}};

Kind random_kind(Random &random) {
    std::uint32_t left = random.count(1, 100);
    for (const Kind &kind : kKinds) {
        if (left <= kind.percent)
            return kind;
        left -= kind.percent;
    }
    return kKinds[0];
}

std::vector<Size> elastic_sizes(const Kind &kind) {
    std::vector<Size> sizes{{.gpus = kind.gpus, .block = kind.block, .speed = kOne}};
    while (sizes.size() < 3 && sizes.back().gpus > 1) {
        const std::uint32_t half = sizes.back().gpus / 2;
        sizes.push_back(
            {.gpus = half, .block = std::min(half, kind.block), .speed = sizes.back().speed * 55 / 100});
    }
    std::ranges::reverse(sizes);
    return sizes;
}

struct Load {
    std::uint32_t running, pending;
    bool basic_only = false;
};

Snapshot cluster(std::uint32_t gpus, const Load &load) {
    Random random(gpus);
    Snapshot snapshot;
    const std::uint32_t nodes = gpus / kGpus;
    std::vector<std::uint32_t> free(nodes, kGpus);
    for (std::uint32_t node = 0; node < nodes; ++node)
        snapshot.nodes.push_back({.gpus = kGpus, .leaf = node / kNodesOfLeaf});
    std::uint64_t used = 0;
    for (std::uint32_t index = 0; index < load.running + load.pending; ++index) {
        Job job = testing::random_job(random, 1 + index);
        const std::uint32_t dice = random.count(1, 100);
        if (load.basic_only || dice > 70)
            job.tier = Tier::kBasic;
        else
            job.tier = dice > 30 ? Tier::kStandard : Tier::kPremium;
        job.movable = true;
        const std::vector<Size> sizes = elastic_sizes(random_kind(random));
        std::vector<Share> shares;
        job.size = static_cast<std::uint32_t>(sizes.size()) - 1;
        if (index < load.running && used + sizes.back().gpus <= std::uint64_t{gpus} * 9 / 10) {
            // Next to each other from a random node on: half of the nodes are shared by several jobs.
            std::uint32_t left = sizes.back().gpus;
            for (std::uint64_t node = random.next() % nodes, tries = 0; left > 0 && tries < nodes;
                 ++tries, node = (node + 1) % nodes) {
                const std::uint32_t take =
                    std::min(left, free[node] / sizes.back().block * sizes.back().block);
                if (take == 0)
                    continue;
                free[node] -= take;
                left -= take;
                shares.push_back({.node = static_cast<std::uint32_t>(node), .gpus = take});
            }
            if (left > 0) { // no whole blocks left for it: it does not exist
                for (const Share &share : shares)
                    free[share.node] += share.gpus;
                continue;
            }
            used += sizes.back().gpus;
            job.state = JobState::kRunning;
            job.hour_work = job.hour_elapsed * random.from(kOne * 8 / 10, kOne);
            job.work = job.elapsed * random.from(kOne * 8 / 10, kOne);
        } else {
            job.elapsed = random.from(0, 7200) * kSecond;
            job.hour_elapsed = std::min(job.elapsed, kHour);
            job.work = job.hour_work = 0;
            job.gpu_time = random.chance(70) ? 0 : job.gpu_time;
        }
        snapshot.add(job, sizes, shares);
    }
    return snapshot;
}

struct Measured {
    double milliseconds;
    std::size_t actions;
};

Measured measure(const Snapshot &snapshot, std::uint32_t repeats) {
    if (const std::string defect = defect_of(snapshot); !defect.empty()) {
        fmt::print(stderr, "policy-bench: {}\n", defect);
        std::exit(1);
    }
    Planner planner{Rules{}};
    std::vector<double> times;
    std::size_t actions = 0;
    for (std::uint32_t repeat = 0; repeat < repeats; ++repeat) {
        const auto start = std::chrono::steady_clock::now();
        actions = planner.plan(snapshot).actions.size();
        times.push_back(
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
    return {.milliseconds = times[times.size() / 2], .actions = actions};
}

} // namespace

int main(int count, char **arguments) {
    const long gpus = count > 1 ? std::strtol(arguments[1], nullptr, 10) : 100'000;
    const long repeats = count > 2 ? std::strtol(arguments[2], nullptr, 10) : 5;
    if (gpus < 64 || gpus > 16'000'000 || repeats < 1 || repeats > 1000) {
        fmt::print(stderr, "usage: policy-bench GPUS [REPEATS]\n");
        return 2;
    }
    const auto size = static_cast<std::uint32_t>(gpus);
    const auto times = static_cast<std::uint32_t>(repeats);
    const Measured full = measure(cluster(size, {.running = size / 10, .pending = size / 20}), times);
    const Measured quiet = measure(cluster(size, {.running = size / 10, .pending = 0}), times);
    Snapshot crowded = cluster(size, {.running = size / 10, .pending = 0, .basic_only = true});
    Job gang;
    gang.id = 1'000'000'000;
    gang.tier = Tier::kPremium;
    const Size whole{.gpus = size / kGpus * 92 / 100 * kGpus, .block = kGpus, .speed = kOne};
    crowded.add(gang, std::span(&whole, 1));
    const Measured burst = measure(crowded, times);
    fmt::print("gpus {} full_ms {:.3f} full_actions {} quiet_ms {:.3f} quiet_actions {} gang_ms {:.3f} "
               "gang_actions {}\n",
               size, full.milliseconds, full.actions, quiet.milliseconds, quiet.actions, burst.milliseconds,
               burst.actions);
    return 0;
}
