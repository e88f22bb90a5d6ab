// SPDX-License-Identifier: GPL-2.0-or-later
// What a user's checkpoints name, for the quota, without reading all of their manifests again and again.
#pragma once

#include "common/error.hpp"
#include "criu-hooks/store/hash.hpp"
#include "criu-hooks/store/manifest.hpp"
#include "state.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace singularity::store {

// Remembers which chunks each manifest names. Manifests never change and ids never recur, so what was once
// read of one is true for good: the file in the directory "usage" in which this is kept can be lost, old, or
// written by several hosts at once, and only costs reading manifests. Like Reach it takes eight bytes of each
// hash.
// Invariant: every chunk in it is named by a checkpoint in it.
class Account {
  public:
    // The checkpoints that are there now. Reads manifests that the file does not know, and then writes the
    // file anew: at most one file of 12 bytes per distinct chunk, plus 8 for each run of neighbours that a
    // checkpoint names.
    [[nodiscard]] static Expected<Account> open(const UserSpace &space);

    // Follows what was committed and removed since. False: nothing was. A manifest that cannot be read counts
    // as none: it must not keep a job from being saved; `verify` and `ls` report it.
    [[nodiscard]] Expected<bool> refresh(const UserSpace &space);

    [[nodiscard]] std::size_t checkpoints() const { return known_.size(); }
    [[nodiscard]] std::uint64_t bytes() const;
    [[nodiscard]] bool contains(const Hash &hash) const { return find(hash.prefix()).has_value(); }
    // Of the distinct chunks that the manifest names, those that no checkpoint here does.
    [[nodiscard]] std::uint64_t bytes_added_by(const Manifest &manifest) const;

    // As a file; nothing where it is not a whole one.
    [[nodiscard]] std::vector<std::byte> encode() const;
    [[nodiscard]] static std::optional<Account> decode(std::span<const std::byte> data);

  private:
    // Neighbours in the order in which chunks first appeared: successive checkpoints name them together.
    struct Run {
        std::uint32_t first = 0;
        std::uint32_t count = 0;
    };
    struct Entry {
        std::uint64_t prefix = 0;
        std::uint32_t stored = 0;
    };

    [[nodiscard]] std::optional<std::uint32_t> find(std::uint64_t prefix) const;
    void add(const Manifest &manifest);
    // Forgets what no checkpoint here names any more.
    void compact();
    void make_index();

    std::vector<Entry> entries_;                                 // in the order of their appearance
    std::vector<std::pair<std::uint64_t, std::uint32_t>> index_; // prefix and place, sorted
    std::map<std::string, std::vector<Run>, std::less<>> known_; // by id
};

// Why the file cannot be used, for `verify`; nothing where it can, or where there is none.
[[nodiscard]] Expected<std::optional<Error>> check_account(const UserSpace &space);

} // namespace singularity::store
