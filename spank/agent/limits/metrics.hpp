// SPDX-License-Identifier: GPL-2.0-or-later
// What the agent counts, and the text that tells it: Prometheus' text format, version 0.0.4, as
// node_exporter's textfile collector reads it. Without I/O: server_metrics.cpp knows when it is written, and
// where.
#pragma once

#include "agent/protocol/agent_messages.hpp"
#include "budget.hpp"
#include "share.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::agent {

// What is counted by its outcome: checkpoints that a user or Slurm has asked for, those in between, restores.
enum class Work : std::uint8_t { asked, periodic, restore };

// Since the agent has begun; of jobs of several nodes only by the agent that coordinates them.
class Counters {
  public:
    struct Outcomes {
        std::uint64_t good = 0;
        std::uint64_t failed = 0;
        std::uint64_t total_us = 0; // of the good ones
        std::uint64_t pause_us = 0;
    };
    // Of restores only the time is looked at.
    void succeeded(Work work, const ImageReport &report);
    void failed(Work work) { ++outcomes_[static_cast<std::size_t>(work)].failed; }
    [[nodiscard]] const Outcomes &of(Work work) const { return outcomes_[static_cast<std::size_t>(work)]; }

    // Of nodes on this host that run, for whether they could be saved.
    enum class Check : std::uint8_t { clear, obstacle, failed };
    std::array<std::uint64_t, 3> checks{};

    std::uint64_t devices_bytes = 0; // of checkpoints
    std::uint64_t host_bytes = 0;
    std::uint64_t stored_bytes = 0;
    std::uint64_t requests_refused = 0;
    std::uint64_t workers_died = 0;
    std::uint64_t devices_lost = 0; // by nodes, their proxies with them
    std::uint64_t steps_failed = 0; // of Slurm's, for another reason than the ends of their ranks

  private:
    std::array<Outcomes, 3> outcomes_;
};

// The agent's own, for its one thread: as with the log, who counts need not be told where.
[[nodiscard]] Counters &counters();

// What is so at the moment.
struct Gauges {
    struct RunningJob {
        std::string name;
        std::time_t started = 0;
        std::uint64_t every_s = 0; // 0: it is not saved periodically
        std::optional<std::time_t> saved;
    };
    std::string version;
    std::time_t started = 0;
    std::map<std::string, std::uint64_t, std::less<>> nodes; // by state
    std::map<std::string, std::uint64_t, std::less<>> jobs;
    std::array<std::uint64_t, kBudgets> over_budget{}; // Budgets::refusals
    std::uint64_t waiting = 0; // records of an earlier agent that could not be read yet
    std::vector<RunningJob> running;
    std::array<Held, kShared.size()> held{}; // in the order of kShared
};

// So many jobs have lines of their own, and of more only those that were saved longest ago, which alerts look
// for.
constexpr std::size_t kShownJobs = 256;

// When the checkpoint was begun: ids begin with that time, in UTC (criu-hooks/store).
[[nodiscard]] std::optional<std::time_t> time_of_checkpoint(const std::string &id);

// Backslash, quotation mark and the end of a line as the format has them.
[[nodiscard]] std::string escaped_label(std::string_view value);

[[nodiscard]] std::string metrics_text(const Counters &counters, Gauges gauges);

} // namespace singularity::agent
