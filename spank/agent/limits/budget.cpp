// SPDX-License-Identifier: GPL-2.0-or-later
#include "budget.hpp"

#include "common/text.hpp"

#include <limits>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

struct Row {
    std::string_view name;
    std::string_view what; // several of them
    std::int64_t Config::PerUser::*limit;
    std::uint64_t unit;
    std::string_view help; // what the user does about it
};

// In the order of Budget.
constexpr std::array<Row, kBudgets> kRows{{
    {"connections", "connections to the agent", &Config::PerUser::connections, 1, "close some"},
    {"nodes", "virtual nodes", &Config::PerUser::nodes, 1, "destroy some (singularityctl ps, destroy)"},
    {"jobs", "jobs that this host coordinates", &Config::PerUser::jobs, 1,
     "destroy some (singularityctl ps, destroy)"},
    {"scripts", "batch scripts", &Config::PerUser::scripts, 1, "start fewer at a time"},
    {"restores", "restores", &Config::PerUser::restores, 1, "try again later"},
    {"workers", "processes that save, restore or remove something", &Config::PerUser::workers, 1,
     "try again when some have ended"},
    {"questions", "questions about jobs that slurmctld has not answered", &Config::PerUser::questions, 1,
     "try again when it answers"},
    {"notes", "notes about jobs that slurmctld has not been told", &Config::PerUser::notes, 1,
     "have fewer checkpoints made at a time"},
    {"closing", "processes that wait for file systems to close what was sent", &Config::PerUser::closing, 1,
     "have the file systems answer, or unmount them"},
    {"ranks", "ranks of jobs that this host coordinates", &Config::PerUser::ranks, 1,
     "destroy jobs that have ended (singularityctl ps, destroy)"},
    {"tasks", "tasks of virtual nodes", &Config::PerUser::tasks, 1,
     "wait for those that have ended, or destroy their nodes (singularityctl ps, destroy)"},
    {"ports", "ports that lead to virtual nodes", &Config::PerUser::ports, 1,
     "end a job that publishes some, or publish fewer"},
    {"program_mib", "of arguments and environments", &Config::PerUser::program_mib, kMebibyte,
     "start fewer tasks on this host at a time, or with less"},
    {"output_mib", "of output that is kept", &Config::PerUser::output_mib, kMebibyte,
     "read it, or destroy what has ended (singularityctl ps, destroy)"},
}};

} // namespace

Budgets::Budgets(const Config::PerUser &limits) {
    for (std::size_t at = 0; at < kBudgets; ++at)
        limits_[at] = static_cast<std::uint64_t>(limits.*kRows[at].limit) * kRows[at].unit;
}

std::uint64_t Budgets::limit(Budget what, uid_t uid) const {
    return uid == 0 ? std::numeric_limits<std::uint64_t>::max() : limits_[static_cast<std::size_t>(what)];
}

std::optional<std::string> Budgets::refusal(Budget what, uid_t uid, std::uint64_t has, std::uint64_t more) {
    const auto at = static_cast<std::size_t>(what);
    const std::uint64_t limit = this->limit(what, uid);
    if (has <= limit && more <= limit - has)
        return std::nullopt;
    ++refusals_[at];
    const Row &row = kRows[at];
    if (row.unit == 1 && more > 1)
        return fmt::format(
            "uid {} has {} {} already and wants {} more, and per_user.{} in singularity.yaml allows {}: {}",
            uid, has, row.what, more, row.name, limit, row.help);
    if (row.unit == 1)
        return fmt::format("uid {} has {} {} already, and per_user.{} in singularity.yaml allows {}: {}", uid,
                           has, row.what, row.name, limit, row.help);
    return fmt::format(
        "uid {} has {} {} already and wants {} more, and per_user.{} in singularity.yaml allows {}: {}", uid,
        byte_count(has), row.what, byte_count(more), row.name, byte_count(limit), row.help);
}

std::string_view name_of(Budget what) { return kRows[static_cast<std::size_t>(what)].name; }

Budgets &budgets() {
    static Budgets of_the_agent{Config().per_user};
    return of_the_agent;
}

} // namespace singularity::agent
