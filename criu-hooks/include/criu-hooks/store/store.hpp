// SPDX-License-Identifier: GPL-2.0-or-later
// The checkpoint store: a directory on a file system that all nodes share, in which checkpoints lie as
// manifests and as chunks named by their content. Only its owner, root, can reach it. README.md of
// criu-hooks/store says what lies where and why no crash and no concurrent writer can damage a checkpoint.
#pragma once

#include "common/error.hpp"
#include "criu-hooks/store/manifest.hpp"
#include "criu-hooks/store/options.hpp"
#include "criu-hooks/store/reader.hpp"
#include "criu-hooks/store/writer.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

namespace singularity::store {

struct StoreState;

// What `ls` shows of a checkpoint.
struct Summary {
    std::string id;
    std::string parent;
    std::string job;
    std::string user;
    std::string tier;
    std::int64_t time = 0;
    Sizes sizes;
    std::size_t nodes = 0;
    std::size_t devices = 0;
    std::size_t images = 0;
};

struct Listing {
    std::vector<Summary> checkpoints; // newest first
    std::vector<Error> damaged;       // one for each manifest that cannot be read
};

// Safe to use from several threads; copies are the same store.
class Store {
  public:
    // Refuses a directory that anybody but its owner, the effective user, could reach or replace, a store of
    // another format, and, with `create`, a directory in which there is something else.
    [[nodiscard]] static Expected<Store> open(const std::filesystem::path &directory,
                                              const Options &options = {});

    // Everybody who ever had a checkpoint here, in ascending order.
    [[nodiscard]] Expected<std::vector<uid_t>> users() const;
    [[nodiscard]] Expected<Listing> list(uid_t uid) const;
    [[nodiscard]] Expected<Manifest> manifest(uid_t uid, const std::string &id) const;

    // A new checkpoint. It exists once the writer's commit has returned, and not at all before.
    [[nodiscard]] Expected<Writer> begin(const Request &request) const;
    // Writes images on this host for a checkpoint that another host has begun and will commit. The other
    // host's writer must live until it has them: see Writer::finish_part.
    [[nodiscard]] Expected<Writer> join(uid_t uid, const std::string &id) const;

    // While the result lives, nothing that the checkpoint needs is removed, even if the checkpoint is.
    [[nodiscard]] Expected<Checkpoint> read(uid_t uid, const std::string &id) const;

    // The checkpoint is gone on return; its content goes with the next garbage collection. False: there is
    // none.
    [[nodiscard]] Expected<bool> remove(uid_t uid, const std::string &id) const;

    // For the store's own functions.
    [[nodiscard]] const std::shared_ptr<StoreState> &state() const { return state_; }

  private:
    explicit Store(std::shared_ptr<StoreState> state) : state_(std::move(state)) {}

    std::shared_ptr<StoreState> state_;
};

} // namespace singularity::store
