// SPDX-License-Identifier: GPL-2.0-or-later
// What a checkpoint of a node consists of. The order makes the cut: a client that has let go of its proxy
// neither computes nor waits for it, so the devices' images and the node's, which is dumped after them, are
// of one moment, whatever the rest of the program does in between.
#pragma once

#include "agent/worker/worker_messages.hpp"
#include "agent_link.hpp"
#include "common/config.hpp"
#include "common/error.hpp"
#include "criu-hooks/host/staging.hpp"
#include "criu-hooks/store/store.hpp"
#include "devices.hpp"
#include "image_mark.hpp"
#include "jobs.hpp"
#include "node/record.hpp"
#include "proxy/control/barrier.hpp"

#include <chrono>
#include <memory>
#include <optional>

namespace singularity::worker {

// In the order in which they are called.
class Saving {
  public:
    Saving(const agent::WorkSave &job, AgentLink &agent);

    // Nobody else is at the node from now on, and it has no connection to the outside.
    [[nodiscard]] Expected<void> begin();
    // Makes what will be needed while the program stands still.
    [[nodiscard]] Expected<void> prepare();
    // The ranks stop between two collectives: all of this node's,
    [[nodiscard]] Expected<void> stop_ranks();
    // or, in rounds, all of a job's.
    [[nodiscard]] Expected<agent::WorkReports> round(const agent::WorkRound &round);
    // The images are in the staging directory, and the node stands still.
    [[nodiscard]] Expected<void> cut(agent::ImageReport &report);
    [[nodiscard]] Expected<void> store_images(store::Writer &writer);
    // The node's record, and what its job keeps with it.
    [[nodiscard]] Expected<void> describe(store::Writer &writer);
    // It runs as if nothing had been; also instead of the rest. Devices come first: a program that runs finds
    // them.
    [[nodiscard]] Expected<void> resume();

    // The same after an error, if it is necessary. A node that cannot go on as it was must not go on at all:
    // it is lost.
    void undo();
    [[nodiscard]] bool lost() const { return lost_; }
    [[nodiscard]] bool has_devices() const { return devices_.any(); }
    [[nodiscard]] Deadline::Clock::duration pause() const { return Deadline::Clock::now() - begun_; }
    // What is in the staging directory is of no use any more, and the node is nobody's again.
    void end();
    // The same, but whoever comes next finds that a worker was there: it stands still.
    void leave();

  private:
    [[nodiscard]] Expected<void> look_at_image();

    const agent::WorkSave &job_;
    AgentLink &agent_;
    node::Room room_;
    Devices devices_;
    std::optional<Mark> mark_;
    std::unique_ptr<host::Staging> staging_;
    std::optional<proxy_control::NodeBarrier> barrier_; // its end opens gates
    Deadline::Clock::time_point begun_;                 // the cut that counts
    Config::Files files_;
    std::uint64_t local_quota_ = 0; // bytes
    std::string local_origin_;      // of what has been saved
    std::optional<Marked> image_;   // of a node with an image
    std::vector<UniqueFd> written_; // files whose content the checkpoint relies on
    bool touched_ = false;          // the node may not run as it did
    bool lost_ = false;
};

[[nodiscard]] std::uint64_t microseconds(Deadline::Clock::duration span);
[[nodiscard]] std::string user_name(uid_t uid);

} // namespace singularity::worker
