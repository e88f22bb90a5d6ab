// SPDX-License-Identifier: GPL-2.0-or-later
// singularityctl run --hosts: a program on several hosts, once for each rank.
#pragma once

#include "agent/protocol/agent_messages.hpp"
#include "agent/protocol/client.hpp"
#include "common/error.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace singularity::spank {

struct RunJobOptions {
    std::filesystem::path socket; // the agent's
    std::vector<std::string> hosts;
    std::uint32_t ranks_per_node = 0; // 0: not given
    bool label = false;               // each line begins with its rank
    bool detach = false;
    std::uint32_t every = 0;            // seconds between checkpoints that nobody asks for; 0: none
    std::vector<std::uint16_t> publish; // TCP ports of its nodes
};

// The highest exit status of all ranks. The job has ended, unless detached.
[[nodiscard]] Expected<int> run_job(const RunJobOptions &options, std::uint32_t devices,
                                    const std::string &backend, const std::vector<std::string> &command);

// A job that was restored, tied to this connection, to its end.
[[nodiscard]] Expected<int> accompany_job(agent::Client client, const RunJobOptions &options,
                                          const agent::Imaged &restored);

// What ranks have written, in the order in which it comes, to our standard output.
class RankOutput {
  public:
    // read: of each rank, what has been printed already.
    explicit RankOutput(bool label, std::vector<std::uint64_t> read = {})
        : label_(label), read_(std::move(read)) {}
    void print(const std::vector<agent::JobOutput> &output);
    // Lines that have not come to their end.
    void finish();
    // Of each rank.
    [[nodiscard]] const std::vector<std::uint64_t> &read() const { return read_; }

  private:
    bool label_;
    std::vector<std::uint64_t> read_;
    std::map<std::uint32_t, std::string> begun_; // lines
};

// All that there is of a job's output; only: a rank, or -1. ENOENT: there is no such job.
[[nodiscard]] Expected<void> show_job_log(agent::Client &client, const std::string &job, std::int32_t only,
                                          bool label);

[[nodiscard]] Expected<void> list_jobs(agent::Client &client);

} // namespace singularity::spank
