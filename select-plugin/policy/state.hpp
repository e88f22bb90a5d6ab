// SPDX-License-Identifier: GPL-2.0-or-later
// The planner's working memory and the steps of making a plan:
//
//     planner.cpp     the order of the steps, and how a job gets what it is to get
//     victims.cpp     who makes room
//     defragment.cpp  who moves aside
//
// What is tried and given up again is undone through trial_, in which the victims and migrants of the one job
// that is being served are noted. Everything else that is decided stays.
#pragma once

#include "room.hpp"
#include "select-plugin/policy/plan.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

namespace singularity::policy {

// Whether the job's guarantee bears an interruption now, at the size that it has (need.cpp).
[[nodiscard]] bool bears_move(const Job &job, const Snapshot &snapshot, const Rules &rules);

class Planner::State {
  public:
    explicit State(const Rules &rules) : rules_(rules) {}

    const Plan &make(const Snapshot &snapshot);
    [[nodiscard]] const Rules &rules() const { return rules_; }

  private:
    static constexpr std::uint32_t kMostLevels = 16; // of service

    // What is known of a job and decided about it.
    struct Working {
        Fraction shortfall = 0;
        std::uint32_t gpus = 0;       // that it holds
        std::uint32_t need = kNobody; // index of a size; kNobody: nothing
        std::uint32_t shrink_to =
            kNobody; // the smallest size that may be left to it, in place; kNobody: not less than it has
        std::uint32_t action = kNobody; // its start, in Plan::actions: may still become a larger one
        std::uint8_t level = 0;         // of service received
        Tier tier = Tier::kBasic;
        bool running = false;
        bool may_move = false;      // by its budget, if it must
        bool may_volunteer = false; // by its budget, if somebody would like it to
        bool serves_service =
            false;                // shrinks for others' service: not premium, whose slack is for moves alone
        bool best_effort = false; // its tier has no guarantee
        bool may_yield = false;   // it needs nothing for its own guarantee
        bool gives_way = false;   // it needs it, but a higher tier's guarantee comes first
        bool may_step_aside = false; // may volunteer, and its own guarantee bears the interruption
        bool decided = false;        // it has its action or is to be left alone
    };

    // A victim's or a migrant's part in serving the one job that is being served.
    struct Trial {
        std::uint32_t job = 0;
        std::uint32_t to = 0; // size; kNobody: yields
        bool migrant = false;
        std::uint32_t first_share = 0; // of a migrant, in Plan::shares
        std::uint32_t shares = 0;
    };

    // That a job has a share of a node.
    struct Holding {
        std::uint32_t job = 0;
        std::uint32_t share = 0; // in Snapshot::shares
    };

    // What the next block of a node costs; compares by cost, then by node.
    struct Offer {
        std::uint64_t cost = 0; // rank, victims, GPUs beyond what is wanted
        Milliseconds stale = 0; // age of the oldest checkpoint among the victims'
        std::uint32_t node = 0;
        auto operator<=>(const Offer &) const = default;
    };
    struct Pick {
        std::uint32_t job = 0;
        std::uint32_t to = 0;
    };
    struct Candidate {
        std::uint32_t amount = 0; // GPUs on the node
        std::uint32_t waste = 0;  // GPUs elsewhere
        Milliseconds stale = 0;
        Pick pick;
    };

    // Whom those that are served now may take from. For guarantees: from everybody what he does not need, and
    // with strict tiers also what jobs of lower tiers than `served` need. For service: only from those that
    // received enough more, and jobs of tiers with a guarantee never yield for it.
    struct Mode {
        bool service = false;
        Tier served = Tier::kBasic;     // whose guarantees
        std::uint32_t shrink_level = 0; // from this level of service on jobs shrink
        std::uint32_t yield_level = 0;  // from this one on they yield
        bool operator==(const Mode &) const = default;
    };

    // What a job that may be taken from gives.
    enum class Giving : std::uint8_t { kNothing, kSurplus, kEverything };

    // How unwelcome a victim is, from 0 to kRanks: those that shrink before those that yield, and these
    // before those that give way; among them basic before standard before premium.
    static constexpr std::uint32_t kYielding = kTiers;
    static constexpr std::uint32_t kGivingWay = 2 * kTiers;
    static constexpr std::uint32_t kRanks = 3 * kTiers;
    [[nodiscard]] static std::uint32_t rank_of(const Working &victim, bool yields);

    // How far one may go for the job that is being served.
    enum class Means : std::uint8_t { kIdle, kVictims };

    // Of what may be used by the job that is being served.
    [[nodiscard]] std::uint64_t capacity(std::uint32_t block) const { return room_.capacity(block, kinds_); }
    [[nodiscard]] bool is_usable(std::uint32_t node) const {
        return is_among(snapshot_->nodes[node].kind, kinds_);
    }

    // planner.cpp
    void prepare();
    void prepare_job(std::uint32_t index);
    void prepare_victim(std::uint32_t index);
    void serve_guarantees();
    void leave_draining_nodes();
    void serve_by_service();
    void start_by_service(std::span<const std::uint32_t> jobs, std::uint32_t level);
    void grow_by_service(std::span<const std::uint32_t> jobs, std::uint32_t level);
    bool grow(std::uint32_t index, Reason reason, Means means);
    bool fill();
    bool start_into_idle();
    [[nodiscard]] bool may_grow(std::uint32_t index) const;
    bool grow_into_idle();
    void note_waits();
    bool serve(std::uint32_t index, std::uint32_t size, Reason reason, Means means);
    bool make_room(std::uint32_t index, std::uint64_t count, std::uint32_t block, Reason &reason,
                   Means means);
    void commit(std::uint32_t index, std::uint32_t size, ActionKind kind, Reason reason,
                std::size_t first_share);
    bool enlarge(std::uint32_t index, std::uint32_t size);
    void place(std::span<const Share> near, std::uint64_t count, std::uint32_t block);
    [[nodiscard]] bool fits_with(std::span<const Share> own, const Size &size) const;
    [[nodiscard]] bool worth_growing(const Job &job, std::uint32_t size) const;
    [[nodiscard]] bool has_share_of_draining_node(const Job &job) const;

    // victims.cpp
    void reset_potential();
    void set_mode(Mode mode);
    void change_potential(std::uint32_t job, Giving from, Giving to);
    [[nodiscard]] std::span<const std::uint32_t> victims_between(Mode before, Mode after) const;
    void release(std::uint32_t node, std::uint32_t gpus);
    void occupy(std::uint32_t node, std::uint32_t gpus);
    void occupied(std::uint32_t node, std::uint32_t gpus); // in room_ already
    void set_potential(std::uint32_t node, std::uint32_t gpus);
    void touch(std::uint32_t node);
    void withdraw(std::uint32_t job); // may not be taken from any longer
    void offer_again(std::uint32_t job);
    template <class Function>
    void each_release(std::uint32_t job, std::uint32_t to, Function function) const;
    [[nodiscard]] bool in_place(const Job &job, const Size &size) const;
    [[nodiscard]] bool may_shrink(const Working &working) const { return shrinks_in(mode_, working); }
    [[nodiscard]] bool may_yield(const Working &working) const;
    [[nodiscard]] static bool shrinks_in(Mode mode, const Working &working);
    [[nodiscard]] static bool yields_in(Mode mode, const Working &working);
    [[nodiscard]] static Giving giving_in(Mode mode, const Working &working);
    [[nodiscard]] std::uint32_t given(Giving giving, std::uint32_t share) const;
    void apply(Pick pick);
    void unapply(Pick pick);
    bool offer(std::uint32_t node, std::uint32_t block, Offer &offer);
    void flush_touched();
    void find_offers(std::uint32_t index);
    void push_offer(std::uint32_t index, const Offer &offer);
    [[nodiscard]] bool pop_offer(std::uint32_t index, Offer &best);
    bool take_room(std::uint64_t count, std::uint32_t block);
    bool take_whole_gang(std::uint64_t lacking, std::uint32_t block, std::span<const std::uint32_t> gangs,
                         std::size_t &cursor);
    bool take_the_rest();
    void spare_victims(std::uint64_t count, std::uint32_t block);
    [[nodiscard]] bool worth_its_victims() const;
    void undo_trial();

    // defragment.cpp
    bool defragment(std::uint32_t beneficiary, std::uint64_t count, std::uint32_t block);
    [[nodiscard]] Milliseconds wait_of(const Job &job) const;
    bool pick_migrants(std::uint32_t node, std::uint32_t block);
    void order_clearing(std::uint32_t block, std::uint64_t most);
    bool clear_node(std::uint32_t node, std::uint32_t block, Milliseconds &budget);
    bool move_aside(std::uint32_t job, std::uint32_t block);
    void move_back(const Trial &trial);

    Rules rules_;
    Plan plan_;
    const Snapshot *snapshot_ = nullptr;
    Room room_;
    std::vector<std::uint32_t> blocks_; // sizes of blocks that jobs have
    std::array<std::uint32_t, kMostGpusOfNode + 1> block_index_{};
    Capacities empty_capacity_; // what the cluster holds with nothing on it
    std::vector<std::uint32_t> free_;
    std::vector<Working> working_;
    std::vector<std::uint32_t> order_; // of jobs, in the step at hand
    std::vector<std::uint32_t> by_service_;
    std::vector<Trial> trial_;
    Kinds kinds_ = kAllKinds;         // that the job being served may use
    std::uint32_t gain_ = 0;          // GPUs that the job being served gets beyond those that it has
    std::vector<Share> own_;          // of the start that is being enlarged
    std::vector<std::uint32_t> rest_; // in trial_, see take_the_rest()
    bool relocated_ = false;          // a job has left a place where it was or was to be

    Mode mode_;
    std::vector<std::uint32_t> first_holding_; // by node, in holdings_; one more at the end
    std::vector<Holding> holdings_;
    std::vector<std::uint32_t> victims_; // jobs that have holdings, by level of service
    std::array<std::uint32_t, kMostLevels + 1> first_victim_{}; // by level, in victims_
    std::vector<std::uint8_t> shrink_release_; // by share: GPUs that shrinking to shrink_to gives back
    std::vector<std::uint32_t> potential_;     // by node: free and takeable
    Capacities potential_capacity_;
    // By block, by kind of node: heaps. An offer may be outdated, and is looked at again when it is the best.
    std::vector<std::array<std::vector<Offer>, kMostKinds>> offers_;
    std::vector<Kinds> has_offers_; // by block: of which kinds
    std::vector<std::uint8_t> is_touched_;
    std::vector<std::uint32_t> touched_; // nodes whose offers may have become better
    std::vector<Candidate> candidates_;
    std::vector<Pick> picks_;
    // Those that may yield or give way, the largest first; by rank, from kYielding on.
    std::array<std::vector<std::uint32_t>, kRanks - kYielding> gangs_;
    std::vector<std::uint32_t> order_of_clearing_; // nodes
    std::vector<Share> cleared_;                   // nodes with a free block, closed for the time being
};

template <class Function>
void Planner::State::each_release(std::uint32_t job, std::uint32_t to, Function function) const {
    const Job &record = snapshot_->jobs[job];
    const auto shares = snapshot_->shares_of(record);
    if (to == kNobody) {
        for (std::uint32_t index = 0; index < record.shares; ++index)
            function(record.first_share + index, shares[index].gpus);
        return;
    }
    // What stays is on nodes that are not draining, if there is enough.
    const Size &size = snapshot_->sizes_of(record)[to];
    std::uint32_t left = size.gpus / size.block;
    for (const bool open : {true, false}) {
        for (std::uint32_t index = 0; index < record.shares; ++index) {
            if (room_.open(shares[index].node) != open)
                continue;
            const std::uint32_t kept = std::min(left, shares[index].gpus / size.block);
            left -= kept;
            function(record.first_share + index, shares[index].gpus - (kept * size.block));
        }
    }
}

} // namespace singularity::policy
