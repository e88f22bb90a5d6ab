// SPDX-License-Identifier: GPL-2.0-or-later
// Whether a node could be saved as it is, while it runs and without its taking notice. What is found counts
// if it is found several times in a row: processes begin and end while they are looked at, and what a program
// holds for a moment is no reason to tell its user anything.
#include "criu-hooks/host/node.hpp"
#include "host_node.hpp"
#include "jobs.hpp"
#include "node/process.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include <sys/prctl.h>
#include <sys/resource.h>

namespace singularity::worker {

namespace {

using namespace std::chrono_literals;

// The agent waits for longer.
constexpr auto kBetweenChecks = 2s;
constexpr int kMostChecks = 6;
constexpr int kInARow = 3;
constexpr int kPoliteness = 10; // setpriority(2)

// Nobody would hear of what it finds, nor end it.
Expected<void> end_with_agent(const AgentLink &agent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return std::unexpected(errno_error("end with", "the agent"));
    return agent.still_wanted(); // it may have ended before that
}

// Empty: there is none.
Expected<std::string> obstacle_of(const node::Record &record, AgentLink &agent) {
    auto outside = outside_of(record);
    if (!outside)
        return propagate(outside);
    auto connections = connections_of_init(record);
    if (!connections)
        return propagate(connections);
    for (const auto &one : *connections)
        outside->descriptors.push_back({.key = "agent", .fd = one.get()});
    auto good = host::check(context_of(record.spec, agent, "checking processes"),
                            {.init = record.init.pid,
                             .descriptors = std::move(outside->descriptors),
                             .mounts = {},
                             .local_directories = {},
                             .neighbours = neighbours_of(record.spec),
                             .others_are_reset = has_way_out(record.spec),
                             .owner = {}});
    if (!good && good.error().code != EOPNOTSUPP)
        return propagate(good);
    return good ? std::string() : good.error().message();
}

Expected<agent::WorkChecked> work(const agent::WorkCheck &job, AgentLink &agent) {
    if (auto bound = end_with_agent(agent); !bound)
        return propagate(bound);
    if (setpriority(PRIO_PROCESS, 0, kPoliteness) != 0)
        return std::unexpected(errno_error("give way to", "the node's programs"));
    agent::WorkChecked out;
    for (int number = 0, in_a_row = 0; number < kMostChecks; ++number) {
        if (number != 0)
            std::this_thread::sleep_for(kBetweenChecks); // the agent kills whom it does not want any more
        auto found = obstacle_of(job.record, agent);
        if (!found || found->empty())
            return found ? Expected<agent::WorkChecked>() : propagate(found);
        in_a_row = *found == out.obstacle ? in_a_row + 1 : 1;
        out.obstacle = std::move(*found);
        if (in_a_row == kInARow)
            return out;
    }
    return agent::WorkChecked(); // each time something else
}

} // namespace

Outcome check(const agent::WorkCheck &job, AgentLink &agent) {
    auto checked = work(job, agent);
    if (checked)
        if (auto told = agent.tell(*checked); !told)
            checked = propagate(told);
    if (!checked)
        return {.report = std::unexpected(std::move(checked.error()))};
    return {.report = agent::ImageReport(), .told = true};
}

} // namespace singularity::worker
