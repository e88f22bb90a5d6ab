// SPDX-License-Identifier: GPL-2.0-or-later
// What communicators are known by, on all ranks and for ever (docs/collectives.md): made up in a unique id,
// or computed from what all members know.
#pragma once

#include "outcome.hpp"
#include "proxy/nccl/abi.hpp"

#include <array>
#include <cstdint>
#include <span>

namespace singularity::nccl {

using Key = std::array<std::uint64_t, 2>;

// ncclGetUniqueId. With NCCL_COMM_ID it is the same for whoever has the same value there.
[[nodiscard]] Outcome<UniqueId> new_unique_id();
// Of one id, its own number; of several, one that depends on all of them and their order.
[[nodiscard]] Outcome<Key> key_of(std::span<const UniqueId> ids);

// number: counts the splits of the parent.
[[nodiscard]] Key key_of_split(const Key &parent, std::uint64_t number, int color);
// excluded: in ascending order. number: counts the times that these have been excluded.
[[nodiscard]] Key key_of_shrink(const Key &parent, std::uint64_t number, std::span<const int> excluded);
// number: counts the times that the parent has grown. New members have the key from the id.
[[nodiscard]] Key key_of_grow(const Key &parent, std::uint64_t number);
[[nodiscard]] UniqueId id_of(const Key &key);
// For an exchange between the members of a communicator that has been revoked.
[[nodiscard]] Key key_behind_revoked(const Key &parent, std::uint64_t number);

} // namespace singularity::nccl
