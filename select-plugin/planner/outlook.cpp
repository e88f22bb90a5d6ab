// SPDX-License-Identifier: GPL-2.0-or-later
#include "outlook.hpp"

#include "common/slurm/note.hpp"
#include "demand.hpp"
#include "subject.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace singularity::planner {

namespace {

constexpr std::uint32_t kNone = policy::kNobody;

// Which nodes are one pool, by union of the partitions that share one, and of which kind they are there.
class Pools {
  public:
    Pools(std::span<const slurm::Node> nodes, std::span<const slurm::Job> jobs, Outlook &outlook)
        : outlook_(outlook), demanded_(labels_in(jobs)) {
        for (const auto &node : nodes)
            join(node);
        for (const auto &node : nodes)
            if (node.gpus > 0 && node.gpus <= policy::kMostGpusOfNode && !node.partitions.empty())
                add(node);
    }

    // Of the partitions of a job, that of the first in which somebody has GPUs. kNone: there is none.
    [[nodiscard]] std::uint32_t pool_of(const Demand &demand) {
        for (const auto &name : demand.partitions) {
            const auto known = ids_.find(name);
            const auto pool = known == ids_.end() ? pools_.end() : pools_.find(root(known->second));
            if (pool != pools_.end())
                return pool->second;
        }
        return kNone;
    }

    [[nodiscard]] policy::Kinds kinds_of(std::uint32_t pool, const Demand &demand) const {
        return known_[pool].kinds.kinds_of(demand);
    }

    struct Place {
        std::uint32_t pool = kNone;
        std::uint32_t node = kNone;
    };
    [[nodiscard]] Place place_of(const std::string &node) const {
        const auto found = places_.find(node);
        return found == places_.end() ? Place{} : found->second;
    }

  private:
    std::uint32_t id(const std::string &partition) {
        const auto [entry, is_new] = ids_.emplace(partition, static_cast<std::uint32_t>(above_.size()));
        if (is_new)
            above_.push_back(entry->second);
        return entry->second;
    }
    std::uint32_t root(std::uint32_t one) {
        while (above_[one] != one)
            one = above_[one] = above_[above_[one]];
        return one;
    }
    void join(const slurm::Node &node) {
        for (const auto &partition : node.partitions)
            above_[root(id(partition))] = root(id(node.partitions.front()));
    }
    void add(const slurm::Node &node) {
        const auto [entry, is_new] =
            pools_.emplace(root(id(node.partitions.front())), static_cast<std::uint32_t>(pools_.size()));
        if (is_new)
            outlook_.pools.emplace_back();
        auto &pool = outlook_.pools[entry->second];
        if (is_new)
            known_.push_back({.kinds = NodeKinds(demanded_), .leaves = {}});
        auto &known = known_[entry->second];
        const auto kind = known.kinds.kind_of(node);
        places_[node.name] = {.pool = entry->second, .node = static_cast<std::uint32_t>(pool.nodes.size())};
        pool.nodes.push_back(&node);
        pool.snapshot.nodes.push_back({.gpus = node.down ? 0 : node.gpus,
                                       .leaf = known.leaf_of(node, kind),
                                       .kind = kind,
                                       .draining = node.leaves});
    }

    // What is numbered within a pool.
    struct Known {
        NodeKinds kinds;
        std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> leaves; // by kind and name

        std::uint32_t leaf_of(const slurm::Node &node, std::uint32_t kind) {
            const auto next = static_cast<std::uint32_t>(leaves.size());
            return leaves.emplace(std::pair(kind, node.leaf), next).first->second;
        }
    };

    Outlook &outlook_;
    Labels demanded_;
    std::map<std::string, std::uint32_t> ids_; // of partitions
    std::vector<std::uint32_t> above_;         // union-find over them
    std::map<std::uint32_t, std::uint32_t> pools_;
    std::map<std::string, Place> places_;
    std::vector<Known> known_; // by pool
};

// Nothing: they lie in several pools, or on nodes without GPUs.
std::optional<std::pair<std::uint32_t, std::vector<policy::Share>>>
placed(std::span<const slurm::GpuShare> named, const Pools &pools) {
    std::uint32_t pool = kNone;
    std::vector<policy::Share> shares;
    for (const auto &share : named) {
        const auto place = pools.place_of(share.node);
        if (place.pool == kNone || (pool != kNone && pool != place.pool))
            return std::nullopt;
        pool = place.pool;
        shares.push_back({.node = place.node, .gpus = share.gpus});
    }
    if (pool == kNone)
        return std::nullopt;
    return std::pair(pool, std::move(shares));
}

// Or since it began; one that does not run loses nothing.
policy::Milliseconds since_checkpoint(const slurm::Job &job, policy::Milliseconds now) {
    if (!job.running)
        return 0;
    const auto note = slurm::Note::parse(job.admin_comment).value_or(slurm::Note());
    const auto started = policy::Milliseconds{job.started} * policy::kSecond;
    const auto saved = static_cast<policy::Milliseconds>(note.number("saved").value_or(0)) * policy::kSecond;
    return std::max<policy::Milliseconds>(0, now - std::max(started, saved));
}

// Why a pending job is not planned for; empty: it is.
std::string against(const slurm::Job &job, const Record *record, std::span<const policy::Size> sizes,
                    policy::Milliseconds now) {
    if (job.completing)
        return "it is ending";
    if (job.part)
        return "it is a part of a heterogeneous job, whose parts begin together";
    if (job.waiting == slurm::Waiting::kForOther || record == nullptr)
        return "it waits for other things than GPUs";
    // Only what was planned is planned anew: a size that its user has chosen may wait for what others use.
    const bool settled = record->resized == 0 || now - record->resized >= kSettled;
    const bool has_smaller = record->refused != 0 && sizes.front().gpus < gpus_of(job);
    if (job.waiting == slurm::Waiting::kForSize && settled && !has_smaller)
        return "it waits for what a limit of its QOS or association leaves it";
    if (job.waiting == slurm::Waiting::kForTime && !record->yielded)
        return "its time to begin has not come";
    if (record->excused_until > now)
        return "there is room for it and Slurm does not start it";
    const auto note = slurm::Note::parse(job.admin_comment).value_or(slurm::Note());
    const bool by_user = note.get("placed").empty(); // and not by what was last decided for it
    if (by_user && (!job.wishes.required_nodes.empty() || !job.wishes.excluded_nodes.empty()))
        return "it asks for nodes by their names";
    return {};
}

class Look {
  public:
    Look(std::span<const slurm::Node> nodes, std::span<const slurm::Job> jobs, Records &records,
         policy::Milliseconds now)
        : records_(records), now_(now), pools_(nodes, jobs, out_) {
        for (auto &pool : out_.pools) {
            pool.snapshot.now = now;
            used_.emplace_back(pool.nodes.size());
        }
    }

    Outlook take(std::span<const slurm::Job> jobs) {
        // Where those are that stay where they are is certain; the targets of others come after them.
        std::vector<const slurm::Job *> moving;
        for (const auto &job : jobs) {
            if (!job.pending && job.shares.empty())
                continue;
            const auto *const record = records_.find(job.id);
            if (record != nullptr && record->moving_until > now_)
                moving.push_back(&job);
            else if (job.pending)
                add_pending(job, record);
            else
                add_placed(job, record, job.shares);
        }
        for (const auto *const job : moving)
            add_moving(*job, *records_.find(job->id));
        return std::move(out_);
    }

  private:
    [[nodiscard]] static policy::Job shown(const slurm::Job &job, const Record *record) {
        policy::Job out;
        out.id = job.id;
        out.tier = tier_of(job);
        out.move_cost = record != nullptr && record->cost > 0 ? record->cost : kUsualCost;
        if (record != nullptr)
            out.take(record->ledger);
        return out;
    }

    void leave(const slurm::Job &job, std::string why) { out_.left.push_back({&job, std::move(why)}); }

    void add(const slurm::Job &job, policy::Job as, std::uint32_t pool, std::span<const policy::Size> sizes,
             std::span<const policy::Share> shares = {}) {
        for (const auto &share : shares) {
            used_[pool][share.node] += share.gpus;
            // Where it is it may be, whatever has become of the partitions since.
            as.kinds |= policy::Kinds{1} << out_.pools[pool].snapshot.nodes[share.node].kind;
        }
        out_.pools[pool].snapshot.add(as, sizes, shares);
        out_.pools[pool].jobs.push_back(&job);
    }

    [[nodiscard]] bool fits(std::uint32_t pool, std::span<const policy::Share> shares) const {
        return std::ranges::all_of(shares, [&](const policy::Share &share) {
            return used_[pool][share.node] + share.gpus <= out_.pools[pool].snapshot.nodes[share.node].gpus;
        });
    }

    void add_pending(const slurm::Job &job, const Record *record) {
        const auto sizes = records_.sizes_of(job);
        if (sizes.empty())
            return;
        auto why = against(job, record, sizes, now_);
        const auto demand = demand_of(job);
        const auto pool = pools_.pool_of(demand);
        auto as = shown(job, record);
        as.kinds = pool == kNone ? 0 : pools_.kinds_of(pool, demand);
        if (why.empty())
            why = demand.beyond;
        if (why.empty() && as.kinds == 0)
            why = "its partition has no GPUs that it could use";
        if (why.empty())
            add(job, as, pool, sizes);
        else
            leave(job, std::move(why));
    }

    void add_placed(const slurm::Job &job, const Record *record, std::span<const slurm::GpuShare> shares,
                    policy::JobState state = policy::JobState::kRunning) {
        const auto where = placed(shares, pools_);
        const auto sizes = records_.sizes_of(job);
        const auto gpus =
            std::accumulate(shares.begin(), shares.end(), 0U,
                            [](std::uint32_t sum, const slurm::GpuShare &share) { return sum + share.gpus; });
        const auto size = std::ranges::find(sizes, gpus, &policy::Size::gpus);
        std::string why;
        if (size == sizes.end())
            why = "it is of no size that it can have";
        else if (where && !fits(where->first, where->second))
            why = "a node of it is down, or has fewer GPUs than Slurm has given away";
        if (!where || !why.empty()) {
            leave(job, where ? std::move(why) : "its nodes are in no one pool of GPUs");
            return;
        }
        auto as = shown(job, record);
        as.state = job.running ? state : policy::JobState::kMoving;
        // Nobody knows where else it might be.
        const auto demand = demand_of(job);
        as.movable = is_movable(job) && demand.beyond.empty();
        as.kinds = pools_.kinds_of(where->first, demand);
        as.size = static_cast<std::uint32_t>(size - sizes.begin());
        if (job.running)
            as.since_move = std::max<policy::Milliseconds>(
                0, now_ - (policy::Milliseconds{job.started} * policy::kSecond));
        as.since_checkpoint = since_checkpoint(job, now_);
        add(job, as, where->first, sizes, where->second);
    }

    // As it will be when that is done.
    void add_moving(const slurm::Job &job, const Record &record) {
        const auto target = records_.target_of(job.id);
        const auto where = placed(target, pools_);
        if (record.moving_to == 0)
            leave(job, "it makes room"); // and has none
        else if (where && fits(where->first, where->second))
            add_placed(job, &record, target, policy::JobState::kMoving);
        else if (job.pending)
            add_pending(job, &record);
        else
            add_placed(job, &record, job.shares);
    }

    Outlook out_;
    Records &records_;
    policy::Milliseconds now_;
    Pools pools_;
    std::vector<std::vector<std::uint32_t>> used_;
};

} // namespace

Outlook look(std::span<const slurm::Node> nodes, std::span<const slurm::Job> jobs, Records &records,
             policy::Milliseconds now) {
    return Look(nodes, jobs, records, now).take(jobs);
}

} // namespace singularity::planner
