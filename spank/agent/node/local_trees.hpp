// SPDX-License-Identifier: GPL-2.0-or-later
// The directories that jobs have for themselves on this host (../local): which a node gets, and when they go.
// A tree of a job of Slurm's stays as long as slurmctld says that this run of the job goes on, also between
// its steps; any other as long as one of its nodes.
//
// The disk on which they lie may be slow or hang: only names are chosen here. A node's first process makes
// its directories, its worker those of one that is restored, and what is to be done in BASE besides is the
// work of a process of its own, one at a time.
#pragma once

#include "agent/slurm/slurm_job.hpp"
#include "agent/worker/removal.hpp"
#include "common/config.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "local/remove.hpp"
#include "node/record.hpp"
#include "peers/subprocess.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

namespace singularity::agent {

class LocalTrees {
  public:
    LocalTrees(const Libraries &libraries, Config::LocalDirectories settings,
               Config::Containers::Writable images, std::string host)
        : libraries_(&libraries), settings_(std::move(settings)), images_(images), host_(std::move(host)) {}

    // Those of a new node, if nodes have some, and its layer over an image. EAGAIN: what an earlier one has
    // left is just being put away.
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
    // Makes those that a new node has been given, in a process that may wait.
    [[nodiscard]] static std::function<Expected<void>()> maker(const node::Spec &spec);

  private:
    struct Tree {
        std::optional<local::FoundTree> found; // by the last look
        std::chrono::seconds pause{};
        std::optional<Deadline> ask;
        Turn turn; // to ask
        std::optional<SlurmRequest> subprocess;
        std::optional<local::FoundTree> asked_about;
    };
    struct Begun {
        std::string tree;
        std::uint32_t run = 0;
        std::int64_t when = 0; // ns since 1970
    };
    // In the other process: what is to be written and moved, and then what there is, as text.
    [[nodiscard]] static std::string look_after(const std::filesystem::path &base,
                                                const std::vector<Begun> &begun,
                                                const std::vector<local::FoundTree> &over);
    void start_subprocess();
    void take_answer();
    void on_look(const std::string &text);
    [[nodiscard]] Expected<void> name(node::Spec &spec);
    [[nodiscard]] Expected<bool> has_layer(const node::Image &image) const;
    // Whether it is to go.
    [[nodiscard]] bool is_over(const std::string &name, Tree &tree);
    void ask(Tree &tree, const OwnedJob &job);
    void begin_removal();

    const Libraries *libraries_;
    Config::LocalDirectories settings_;
    Config::Containers::Writable images_;
    std::string host_;
    std::map<std::string, Tree> trees_;
    std::optional<Deadline> look_ = Deadline::after(std::chrono::seconds(0));
    std::vector<Begun> begun_;           // to be written; those that are under way come first
    std::vector<local::FoundTree> over_; // to be moved aside; likewise
    std::optional<peers::Subprocess> subprocess_;
    std::size_t begun_under_way_ = 0;
    std::size_t over_under_way_ = 0;
    std::optional<Removal> removal_;
    std::optional<Deadline> remove_; // what is aside
};

} // namespace singularity::agent
