// SPDX-License-Identifier: GPL-2.0-or-later
// The devices of one virtual node on this machine: its proxies' sockets, and the streams that they save and
// restore.
#pragma once

#include "agent_link.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "criu-hooks/store/reader.hpp"
#include "node/record.hpp"
#include "proxy/control/barrier.hpp"
#include "proxy/control/messages.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace singularity::worker {

class Devices {
  public:
    Devices(node::Record record, node::Room room) : record_(std::move(record)), room_(std::move(room)) {}

    [[nodiscard]] bool any() const { return record_.spec.devices != 0; }
    [[nodiscard]] std::uint32_t devices() const { return record_.spec.devices; }
    [[nodiscard]] std::uint32_t proxies() const { return static_cast<std::uint32_t>(record_.proxies.size()); }
    [[nodiscard]] std::uint32_t proxy_of(std::uint32_t device) const { return device % proxies(); }

    // Clients that wait for their images do not find their proxies while these are hidden, and so have no
    // socket open when the node is dumped.
    [[nodiscard]] Expected<void> hide() const;
    [[nodiscard]] Expected<void> show() const;
    // Names for those devices that have no proxy of their own.
    [[nodiscard]] Expected<void> link() const;

    // The files for a save, in the directory `into`, with the memory that it will need, while everything
    // runs.
    [[nodiscard]] Expected<void> prepare(int into, AgentLink &agent, const Deadline &deadline) const;
    // To ask the ranks among the clients, in rounds.
    [[nodiscard]] Expected<proxy_control::NodeBarrier> barrier(const Deadline &deadline) const;
    // The ranks among the clients stop where no collective is half issued, and stay there as long as what is
    // returned lives.
    [[nodiscard]] Expected<proxy_control::NodeBarrier> stop_ranks(AgentLink &agent) const;
    // All proxies at once, each to its file in the directory `into`; their clients have let go of them, or
    // after an error some of them.
    struct Saved {
        std::uint64_t bytes = 0;  // of images
        std::uint64_t memory = 0; // bytes of device memory in use
        std::uint64_t device = 0; // bytes that the smallest of the devices has; 0: none was used
    };
    [[nodiscard]] Expected<Saved> save(int into, AgentLink &agent, const Deadline &deadline) const;
    // Clients that have let go may come back to what they had.
    [[nodiscard]] Expected<void> resume(const Deadline &deadline) const;
    // From the store, to proxies that are new.
    [[nodiscard]] Expected<std::uint64_t> load(const store::Checkpoint &checkpoint, AgentLink &agent,
                                               const Deadline &deadline) const;
    // Until all clients have attached whose processes still live, or some patience is at its end: one that is
    // stopped comes later, and one that cannot is told so by its calls. An error: a proxy is gone. init: of
    // the node.
    [[nodiscard]] Expected<void> await_clients(pid_t init, AgentLink &agent) const;

    // Of a proxy, below a directory of images.
    [[nodiscard]] static std::string file(std::uint32_t proxy);

  private:
    node::Record record_;
    node::Room room_;
};

} // namespace singularity::worker
