// SPDX-License-Identifier: GPL-2.0-or-later
// The device proxies of one virtual node: one singularity-proxyd for each device, processes of the job's user
// in the cgroups of who has asked for the node. They outlive the agent; the node's record says which they
// are.
#pragma once

#include "agent/output/task_log.hpp"
#include "agent/worker/paths.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "node/process.hpp"
#include "node/record.hpp"
#include "rendezvous.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace singularity::agent {

// What a task needs to find the proxies: NAME=VALUE.
[[nodiscard]] std::vector<std::string> device_environment(const Libraries &libraries, std::uint32_t devices);

// Those of the host that serve a node's: with fewer than it has, several of its own share one.
struct ProxyShare {
    std::uint32_t count = 0;
    std::uint32_t first = 0; // of the devices that its cgroups let it have
    // Of each of them, /proc/PID/cgroup of the task whose rank it serves. Empty: all are where their node is.
    std::vector<std::string> cgroups{}; // NOLINT(readability-redundant-member-init): GCC warns without
    // As of neighbour_file.hpp; null: no other node's proxies can have the same devices.
    std::shared_ptr<const UniqueFd> neighbours{}; // NOLINT(readability-redundant-member-init)
    // They open their devices when a program first uses them, and never if none does; else before their node
    // is made.
    bool with_first_client = false;
};

struct ProxyPlan {
    Libraries libraries;
    node::Spec spec;
    node::Room room;     // prepared
    std::string cgroups; // /proc/PID/cgroup of who asks
    ProxyShare share;
    std::chrono::milliseconds turn{};     // as Paths has it
    std::optional<Rendezvous> rendezvous; // with those of other nodes of a job; else they meet each other
};

// Nothing blocks: step() is called when one of the descriptors that watch() names is readable.
class Proxies {
  public:
    // Their processes exist and wait for allow(): write them down first. If the agent dies before, so do
    // they.
    [[nodiscard]] static Expected<Proxies> start(const ProxyPlan &plan);
    // Those of an earlier agent, by their record.
    [[nodiscard]] static Expected<Proxies> adopt(const node::Room &room, const node::Record &record);

    [[nodiscard]] std::vector<node::Identity> identities() const;
    [[nodiscard]] Expected<void> allow();

    void watch(std::vector<int> &fds) const;
    // What they have written since the last call goes to their logs.
    void take_output();
    [[nodiscard]] std::optional<Deadline> next_deadline() const { return kill_at_; }
    // True once all serve; an error says which does not, and why.
    [[nodiscard]] Expected<bool> step();
    // What one has said last, which is its user's.
    [[nodiscard]] std::string last_words(std::uint32_t number);
    // The numbers of those that have ended since the last call.
    [[nodiscard]] std::vector<std::uint32_t> newly_ended();

    // Asks them to end; who has not done so in time is killed by look_at_deadline().
    void end();
    void look_at_deadline();
    [[nodiscard]] bool ended() const;

  private:
    struct One {
        node::Identity identity;
        UniqueFd pidfd;
        UniqueFd ready; // a line comes when it serves; empty once it did
        std::optional<TaskLog> log;
        bool told = false;
    };

    Proxies(node::Room room, std::uint32_t uid) : room_(std::move(room)), uid_(uid) {}
    [[nodiscard]] Expected<void> open_log(std::uint32_t number);

    node::Room room_;
    std::uint32_t uid_;
    std::vector<One> all_;
    UniqueFd go_; // what they wait for
    std::optional<Deadline> kill_at_;
};

} // namespace singularity::agent
