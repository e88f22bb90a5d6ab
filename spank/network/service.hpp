// SPDX-License-Identifier: GPL-2.0-or-later
// singularity-network: holds the network of one job on this host for as long as a node of the job lives, and
// does what agents ask, one after the other.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "job_network.hpp"
#include "messages.hpp"
#include "node/seqpacket.hpp"

#include <optional>
#include <string>
#include <vector>

namespace singularity::network {

class Service {
  public:
    // Agents connect to the listener. Only root is served.
    explicit Service(UniqueFd listener) : listener_(std::move(listener)) {}

    // Until all nodes have ended, or an agent says so, or no agent has come for a while and there is no node.
    [[nodiscard]] Expected<void> serve();

  private:
    void accept();
    // False: the connection is over.
    [[nodiscard]] bool read(const UniqueFd &client);
    // The reply.
    struct Reply {
        std::string bytes;
        UniqueFd descriptor; // that comes along, if there is one
    };
    [[nodiscard]] std::optional<Reply> answer(node::Packet &packet);
    [[nodiscard]] Expected<void> prepare(const Prepare &plan);
    [[nodiscard]] Expected<UniqueFd> place(const PlaceRequest &request);
    [[nodiscard]] Expected<void> attach(const AttachRequest &request, node::Descriptors &given);
    [[nodiscard]] Expected<void> release(const std::string &owner);
    void look_at_nodes();

    UniqueFd listener_;
    std::vector<UniqueFd> clients_;
    std::optional<JobNetwork> network_;
    struct Attached {
        std::uint32_t node = 0;
        std::string owner;
        UniqueFd init; // pidfd
    };
    std::vector<Attached> attached_;
    std::optional<Deadline> lonely_;
    bool had_nodes_ = false;
    bool ended_ = false;
};

} // namespace singularity::network
