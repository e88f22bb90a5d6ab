// SPDX-License-Identifier: GPL-2.0-or-later
// The directories that jobs have for themselves on this host (../local): which a node gets, and when they go.
// A tree of a job of Slurm's stays as long as slurmctld says that this run of the job goes on, also between
// its steps; any other as long as one of its nodes.
#pragma once

#include "common/config.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "node/record.hpp"
#include "removal.hpp"
#include "slurm_job.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <poll.h>

namespace singularity::agent {

class LocalTrees {
  public:
    LocalTrees(const Libraries &libraries, Config::LocalDirectories settings, std::string host)
        : libraries_(&libraries), settings_(std::move(settings)), host_(std::move(host)) {}

    // Those of a new node, if nodes have some.
    [[nodiscard]] Expected<void> give(node::Spec &spec);
    // Those of a node that had some when it was saved: at the same paths, and with nodes that had the same.
    [[nodiscard]] Expected<void> give_again(node::Spec &spec);

    // is_used: by a node or a batch script.
    void handle(const std::function<bool(const std::string &tree)> &is_used);
    // What an earlier agent has left, or the SPANK plugin has made, is looked for now and then, and at once.
    void look_again() { look_ = Deadline::after(std::chrono::seconds(0)); }
    void watch(std::vector<pollfd> &fds) const;
    [[nodiscard]] std::optional<Deadline> next_deadline() const;

    // A batch script has begun that run of its job, with the tree that it was given.
    void begin(uid_t uid, std::uint32_t job, std::uint32_t run);

    // That of a node, whether or not it has directories of its own.
    [[nodiscard]] static std::string tree_of(const node::Spec &spec);

  private:
    struct Tree {
        std::chrono::seconds pause{};
        std::optional<Deadline> ask;
        std::optional<SlurmErrand> errand;
        UniqueFd asked_about;
    };
    void look();
    // Whether it is to go.
    [[nodiscard]] bool is_over(const std::string &name, Tree &tree);
    void ask(const std::string &name, Tree &tree, const OwnedJob &job);
    void begin_removal();
    [[nodiscard]] Expected<void> give(node::Spec &spec, const UniqueFd &tree, const std::string &slot);

    const Libraries *libraries_;
    Config::LocalDirectories settings_;
    std::string host_;
    std::map<std::string, Tree> trees_;
    std::optional<Deadline> look_ = Deadline::after(std::chrono::seconds(0));
    std::optional<Removal> removal_;
    std::optional<Deadline> remove_; // what is aside
};

} // namespace singularity::agent
