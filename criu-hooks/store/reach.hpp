// SPDX-License-Identifier: GPL-2.0-or-later
// The set of chunks that manifests name. Eight bytes of each hash suffice: a false hit keeps a chunk that
// could go, or charges a user for one chunk less, and both need 2^32 chunks to become likely.
#pragma once

#include "common/error.hpp"
#include "criu-hooks/store/hash.hpp"
#include "criu-hooks/store/manifest.hpp"
#include "state.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace singularity::store {

class Reach {
  public:
    void add(const Manifest &manifest);
    void add(const Hash &hash, std::uint32_t stored) { entries_.emplace_back(hash.prefix(), stored); }
    // After the last add, before the first question.
    void seal();

    [[nodiscard]] bool contains(const Hash &hash) const;
    [[nodiscard]] std::uint64_t bytes() const;
    [[nodiscard]] std::size_t chunks() const { return entries_.size(); }

    std::size_t manifests = 0;

  private:
    std::vector<std::pair<std::uint64_t, std::uint32_t>> entries_; // sorted and each once, when sealed
};

// Of all of the user's checkpoints. Fails where a manifest cannot be read: what it names is not known.
[[nodiscard]] Expected<Reach> reach_of(const UserSpace &space);

} // namespace singularity::store
