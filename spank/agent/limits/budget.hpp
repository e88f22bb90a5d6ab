// SPDX-License-Identifier: GPL-2.0-or-later
// What root's agent holds for users, and how much of each one of them may have on this host: so that nobody
// takes what others need. Root has no limit.
#pragma once

#include "common/config.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace singularity::agent {

enum class Budget : std::uint8_t {
    connections,
    nodes,
    jobs,
    scripts,
    restores,
    workers,
    questions,
    notes,
    closing,
    ranks,
    tasks,
    ports,
    program_bytes,
    output_bytes,
};
inline constexpr std::size_t kBudgets = 14;
// Those that shares count (share.hpp).
inline constexpr std::array kShared{Budget::workers, Budget::questions, Budget::notes, Budget::closing,
                                    Budget::ranks,   Budget::tasks,     Budget::ports};

// Its word in singularity.yaml, below per_user.
[[nodiscard]] std::string_view name_of(Budget what);

class Budgets {
  public:
    explicit Budgets(const Config::PerUser &limits);

    // Why a user who has `has` of it may not have `more`: the reason of an error EDQUOT, which names the word
    // in singularity.yaml. Nothing: the user may. A refusal is counted.
    [[nodiscard]] std::optional<std::string> refusal(Budget what, uid_t uid, std::uint64_t has,
                                                     std::uint64_t more = 1);
    // By budget, since the agent has begun.
    [[nodiscard]] const std::array<std::uint64_t, kBudgets> &refusals() const { return refusals_; }

    // What the user may have of it.
    [[nodiscard]] std::uint64_t limit(Budget what, uid_t uid) const;

  private:
    std::array<std::uint64_t, kBudgets> limits_{};
    std::array<std::uint64_t, kBudgets> refusals_{};
};

// The agent's own, for its one thread: as with the counters, who asks need not be told where. The defaults
// until it has read singularity.yaml.
[[nodiscard]] Budgets &budgets();

} // namespace singularity::agent
