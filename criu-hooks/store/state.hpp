// SPDX-License-Identifier: GPL-2.0-or-later
// What is open of a store, and where in it things lie. README.md has the picture.
#pragma once

#include "criu-hooks/store/hash.hpp"
#include "criu-hooks/store/options.hpp"
#include "directory.hpp"
#include "pool.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace singularity::store {

inline constexpr std::size_t kShards = 256;

// The part of the store that belongs to one user. Chunks are looked for in no other.
class UserSpace {
  public:
    // Code ENOENT where the user has none and none is to be made.
    [[nodiscard]] static Expected<std::shared_ptr<UserSpace>> open(const Directory &users, uid_t uid,
                                                                   Missing missing);

    uid_t uid;
    Directory checkpoints; // manifests, by id
    Directory pending;     // leases, by id of what they are for; a lease becomes the manifest
    Directory temporary;   // chunks being written, "<id of the lease>.<random>.<number>", and others
    Directory condemned;   // chunks that nothing named, "<hash>.<random>"
    Directory rounds;      // what gc must wait for before it removes condemned chunks
    Directory damaged;     // chunk files that verify set aside
    Directory usage;       // what is charged for, see account.hpp

    // Chunks lie in 256 directories by the first byte of the hash, made when they are first needed.
    [[nodiscard]] static std::size_t shard_number(const Hash &hash) {
        return std::to_integer<std::size_t>(hash.bytes[0]);
    }
    [[nodiscard]] Expected<const Directory *> shard(const Hash &hash) {
        return shard(shard_number(hash), Missing::kCreateSoon);
    }
    // Null where nobody has needed it yet.
    [[nodiscard]] Expected<const Directory *> existing_shard(std::size_t number);
    // Makes the directories durable, not what is in them.
    [[nodiscard]] Expected<void> sync_shards() const { return chunks_.sync(); }

    UserSpace(uid_t user, std::array<Directory, 8> directories);

  private:
    [[nodiscard]] Expected<const Directory *> shard(std::size_t number, Missing missing);

    Directory chunks_;
    std::mutex mutex_;
    std::array<std::optional<Directory>, kShards> shards_;
};

struct StoreState {
    StoreState(const Options &opened_with, Directory directory, Directory users_in_it, unsigned threads)
        : options(opened_with), top(std::move(directory)), users(std::move(users_in_it)), pool(threads) {}

    Options options;
    Directory top;
    Directory users;
    Pool pool;

    [[nodiscard]] Expected<std::shared_ptr<UserSpace>> space(uid_t uid, Missing missing) const {
        return UserSpace::open(users, uid, missing);
    }
};

// 16 hexadecimal digits nobody else has.
[[nodiscard]] std::string random_name();

// Writes a small file whole or not at all: beside, durable, renamed.
[[nodiscard]] Expected<void> publish_file(const Directory &temporary, const Directory &to,
                                          const std::string &name, std::span<const std::byte> data);

} // namespace singularity::store
