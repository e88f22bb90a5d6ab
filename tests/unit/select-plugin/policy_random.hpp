// SPDX-License-Identifier: GPL-2.0-or-later
// Random clusters for the tests and measurements of the policy: the same for the same seed, on every machine.
#pragma once

#include "select-plugin/policy/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace singularity::policy::testing {

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the standard library's distributions differ between
// libraries.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15;
        std::uint64_t value = state_;
        value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9;
        value = (value ^ (value >> 27U)) * 0x94d049bb133111eb;
        return value ^ (value >> 31U);
    }
    // From least to most, both included.
    std::int64_t from(std::int64_t least, std::int64_t most) {
        return least + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(most - least + 1));
    }
    std::uint32_t count(std::uint32_t least, std::uint32_t most) {
        return static_cast<std::uint32_t>(from(least, most));
    }
    bool chance(std::uint32_t percent) { return count(1, 100) <= percent; }

  private:
    std::uint64_t state_;
};

struct Shape {
    std::uint32_t nodes = 4;
    std::uint32_t gpus = 8; // the most of a node
    std::uint32_t leaves = 2;
    std::uint32_t jobs = 8;
    std::uint32_t pending_percent = 40;
    std::uint32_t large_percent = 30; // of the jobs that span nodes
    std::uint32_t kinds = 3;          // the most of nodes
    bool uniform = false;             // all nodes alike, none draining
};

inline std::vector<Size> random_sizes(Random &random, const Shape &shape) {
    std::vector<Size> sizes;
    std::uint32_t gpus = 0;
    std::uint32_t block = 0;
    if (random.chance(shape.large_percent)) {
        block = 1U << random.count(0, 3);
        gpus = block * random.count(2, std::max(2U, std::min(64U, 2 * shape.nodes * shape.gpus / 3 / block)));
    } else {
        gpus = random.count(1, shape.gpus);
        block = random.chance(70) ? gpus : 1;
    }
    sizes.push_back({.gpus = gpus, .block = block, .speed = kOne});
    // Halved as often as it goes, with a loss or a gain in efficiency.
    while (random.chance(60) && sizes.back().gpus % 2 == 0) {
        const Size &larger = sizes.back();
        const std::uint32_t half = larger.gpus / 2;
        const bool whole = half % larger.block == 0;
        if (!whole && larger.block % 2 != 0)
            break;
        sizes.push_back({.gpus = half,
                         .block = whole ? larger.block : larger.block / 2,
                         .speed = std::max<Fraction>(1, larger.speed * random.from(40, 90) / 100)});
    }
    std::ranges::reverse(sizes);
    return sizes;
}

// Puts the blocks where there is room, anywhere; nothing if there is not enough.
inline std::vector<Share> random_shares(Random &random, std::vector<std::uint32_t> &free, const Size &size) {
    std::vector<std::uint32_t> got(free.size());
    const std::uint32_t blocks = size.gpus / size.block;
    std::uint64_t node = random.next() % std::max<std::size_t>(1, free.size());
    std::uint32_t placed = 0;
    for (std::size_t tries = 0; tries < 2 * free.size() && placed < blocks;
         ++tries, node = (node + 1) % free.size()) {
        while (placed < blocks && free[node] >= size.block && (tries >= free.size() || random.chance(80))) {
            free[node] -= size.block;
            got[node] += size.block;
            ++placed;
        }
    }
    std::vector<Share> shares;
    for (std::uint32_t at = 0; at < free.size(); ++at) {
        if (got[at] > 0 && placed == blocks)
            shares.push_back({.node = at, .gpus = got[at]});
        else
            free[at] += got[at];
    }
    return shares;
}

inline Job random_job(Random &random, std::uint64_t id) {
    Job job;
    job.id = id;
    job.tier = static_cast<Tier>(random.count(0, 2));
    job.movable = random.chance(90);
    job.elapsed =
        random.chance(20) ? random.from(0, 60) * kSecond : random.from(0, std::int64_t{5} * 3600) * kSecond;
    const Fraction fraction = random.chance(30) ? kOne : random.from(0, kOne);
    job.work = job.elapsed * fraction;
    job.hour_elapsed = std::min(job.elapsed, kHour);
    job.hour_work =
        std::min(job.work, job.hour_elapsed * (random.chance(50) ? fraction : random.from(0, kOne)));
    job.gpu_time = random.chance(30) ? 0 : random.from(0, 40) * kHour;
    job.hour_moves = random.chance(50) ? 0 : random.count(0, 6);
    job.since_move = random.from(0, 3600) * kSecond;
    job.since_checkpoint = random.from(0, 3600) * kSecond;
    job.move_cost = random.from(0, 90) * kSecond;
    return job;
}

inline Snapshot random_snapshot(Random &random, const Shape &shape) {
    Snapshot snapshot;
    std::vector<std::uint32_t> free;
    const std::uint32_t kinds = shape.uniform ? 1 : random.count(1, shape.kinds);
    std::vector<std::uint32_t> kind_of_leaf(shape.leaves);
    for (std::uint32_t &kind : kind_of_leaf)
        kind = random.count(0, kinds - 1);
    for (std::uint32_t node = 0; node < shape.nodes; ++node) {
        const std::uint32_t gpus =
            shape.uniform || random.chance(70) ? shape.gpus : random.count(0, shape.gpus);
        const std::uint32_t leaf = std::min(node * shape.leaves / shape.nodes, shape.leaves - 1);
        snapshot.nodes.push_back({.gpus = gpus,
                                  .leaf = leaf,
                                  .kind = kind_of_leaf[leaf],
                                  .draining = !shape.uniform && random.chance(8)});
        free.push_back(gpus);
    }
    for (std::uint32_t index = 0; index < shape.jobs; ++index) {
        Job job = random_job(random, 1 + index);
        const std::vector<Size> sizes = random_sizes(random, shape);
        std::vector<Share> shares;
        if (random.chance(60))
            job.kinds = random.count(1, (1U << kinds) - 1);
        if (!random.chance(shape.pending_percent)) {
            job.size = random.count(0, static_cast<std::uint32_t>(sizes.size()) - 1);
            shares = random_shares(random, free, sizes[job.size]);
        }
        for (const Share &share : shares) // wherever it is, it was allowed to be
            job.kinds |= Kinds{1} << snapshot.nodes[share.node].kind;
        if (!shares.empty())
            job.state = random.chance(92) ? JobState::kRunning : JobState::kMoving;
        else if (random.chance(4))
            job.state = JobState::kMoving;
        snapshot.add(job, sizes, shares);
    }
    return snapshot;
}

inline Rules random_rules(Random &random) {
    Rules rules;
    if (random.chance(50))
        return rules;
    for (TierRules &tier : rules.tiers) {
        tier.moves_per_hour = random.count(0, 8);
        tier.least_run = random.from(0, 15) * kMinute;
    }
    rules.tiers[0].guarantee = random.from(70, 100) * (kOne / 100);
    rules.tiers[1].guarantee = random.from(20, 70) * (kOne / 100);
    rules.horizon = random.from(1, 600) * kSecond;
    rules.payback = random.from(1, 60) * kMinute;
    rules.service_quantum = random.from(1, 120) * kMinute;
    rules.strict_tiers = random.chance(50);
    return rules;
}

} // namespace singularity::policy::testing
