// SPDX-License-Identifier: GPL-2.0-or-later
// The network of a node that is restored, and what its connections to the outside of its job come to.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "criu-hooks/store/reader.hpp"
#include "network/lost_connections.hpp"
#include "node/record.hpp"

#include <optional>

namespace singularity::worker {

class RestoredNetwork {
  public:
    [[nodiscard]] static Expected<RestoredNetwork> make(const node::Spec &spec);
    // One in which others are already. images: of the node, whose checkpoint this is.
    [[nodiscard]] static Expected<RestoredNetwork> join(const node::Spec &spec, UniqueFd home,
                                                        const store::Checkpoint &checkpoint, int images);
    [[nodiscard]] const UniqueFd &home() const { return home_; }
    // When they are all there, and none of their connections has sent anything.
    void before_they_send() {
        if (lost_)
            lost_->before_they_send();
    }
    // When the node's processes are there, and do not run yet.
    [[nodiscard]] Expected<void> end_lost_connections() const;

  private:
    explicit RestoredNetwork(UniqueFd home) : home_(std::move(home)) {}
    UniqueFd home_;
    std::optional<network::LostConnections> lost_; // of a node that has had a way out
};

} // namespace singularity::worker
