// SPDX-License-Identifier: GPL-2.0-or-later
// A checkpoint that is being read.
#pragma once

#include "common/error.hpp"
#include "criu-hooks/store/hash.hpp"
#include "criu-hooks/store/manifest.hpp"
#include "lease.hpp"
#include "state.hpp"

#include <memory>
#include <utility>

namespace singularity::store {

class CheckpointState {
  public:
    CheckpointState(std::shared_ptr<StoreState> store, std::shared_ptr<UserSpace> space, Manifest manifest,
                    std::unique_ptr<Lease> lease)
        : store_(std::move(store)), space_(std::move(space)), manifest_(std::move(manifest)),
          lease_(std::move(lease)) {}

    [[nodiscard]] const Manifest &manifest() const { return manifest_; }
    [[nodiscard]] UserSpace &space() const { return *space_; }
    [[nodiscard]] Pool &pool() const { return store_->pool; }

    // Adds to an error what to do about it: which older checkpoint of the job does without the chunk.
    [[nodiscard]] Error with_way_out(Error error, const Hash &hash) const;

  private:
    std::shared_ptr<StoreState> store_;
    std::shared_ptr<UserSpace> space_;
    Manifest manifest_;
    std::unique_ptr<Lease> lease_; // keeps garbage collection away
};

} // namespace singularity::store
