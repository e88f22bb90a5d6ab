// SPDX-License-Identifier: GPL-2.0-or-later
// What a worker can be asked for. Each returns what the agent is told at the end.
#pragma once

#include "agent/worker/worker_messages.hpp"
#include "agent_link.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "criu-hooks/store/store.hpp"
#include "node/record.hpp"

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

namespace singularity::worker {

// Attribute of a checkpoint that goes when the next one of its node is there.
inline constexpr const char *kPeriodic = "periodic";
// Attributes of its virtual nodes: node::encoded(), and what a job keeps with each.
inline constexpr const char *kRecord = "record";
inline constexpr const char *kRanks = "ranks";
// Attribute of a checkpoint of a job, which has the output of its ranks as a node of the job's name.
inline constexpr const char *kJob = "job";

// The store of that directory, if singularity.yaml has it; empty: that of who has not chosen. With its quota;
// made if it is not there and is to be.
[[nodiscard]] Expected<store::Store> open_store(std::string_view directory, bool create);
// Of all that singularity.yaml has.
[[nodiscard]] Expected<std::vector<std::filesystem::path>> store_directories();

// Where a worker that dies leaves word of itself: node::Room::mark(). Locked as long as one is at work.
class Mark {
  public:
    [[nodiscard]] static Expected<Mark> make(const node::Room &room, const Deadline &deadline);
    // In the directory of a job.
    [[nodiscard]] static Expected<Mark> make(const std::filesystem::path &path, const std::string &whose,
                                             const Deadline &deadline);
    Mark(Mark &&) = default;
    Mark &operator=(Mark &&) = delete;
    Mark(const Mark &) = delete;
    Mark &operator=(const Mark &) = delete;
    ~Mark() = default;
    // All that was begun is done or undone.
    [[nodiscard]] Expected<void> remove();

  private:
    Mark(std::filesystem::path path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
    std::filesystem::path path_;
    UniqueFd file_;
};

struct Outcome {
    Expected<agent::ImageReport> report;
    bool lost = false; // the node must be ended
    bool told = false; // the agent knows already
};

[[nodiscard]] Outcome save(const agent::WorkSave &job, AgentLink &agent);
// A node of a job, with the others and when it is told.
[[nodiscard]] Outcome save_part(const agent::WorkSave &job, AgentLink &agent);
// The job's checkpoint, of which nodes make the parts; and whether there is one, after the death of an agent.
[[nodiscard]] Outcome save_job(const agent::WorkSaveJob &job, AgentLink &agent);
[[nodiscard]] Outcome settle_job(const agent::WorkSettleJob &job, AgentLink &agent);
// How a job has ended instead of its checkpoints, and nothing of jobs that nobody runs again.
[[nodiscard]] Outcome keep_end(const agent::WorkKeepEnd &job);
[[nodiscard]] Outcome forget(const agent::WorkForget &job);
[[nodiscard]] Outcome restore(const agent::WorkRestore &job, AgentLink &agent);
// After the death of a worker: the node runs as if it had never been asked.
[[nodiscard]] Outcome recover(const agent::WorkRecover &job, AgentLink &agent);

// Whether it could be saved as it is; nothing of it is stopped or changed.
[[nodiscard]] Outcome check(const agent::WorkCheck &job, AgentLink &agent);

} // namespace singularity::worker
