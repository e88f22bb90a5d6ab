// SPDX-License-Identifier: GPL-2.0-or-later
// How communicators begin and end, and what a program may ask about one. Functions are NCCL's.
#pragma once

#include "communicator.hpp"

#include <span>

namespace singularity::nccl {

// ncclCommInitRank*; ids: one or more, the same on all ranks.
[[nodiscard]] Result init_rank(Library &library, CommunicatorHandle *out, int ranks, int rank, int ids,
                               const UniqueId *id, const Config *config);
[[nodiscard]] Result init_all(Library &library, CommunicatorHandle *out, int devices, const int *list);
[[nodiscard]] Result split(Library &library, CommunicatorHandle parent, int color, int order,
                           CommunicatorHandle *out, const Config *config);
[[nodiscard]] Result shrink(Library &library, CommunicatorHandle parent, const int *excluded, int count,
                            CommunicatorHandle *out, const Config *config, int flags);
// ncclCommGetUniqueId: the id with which others join when the communicator grows the next time.
[[nodiscard]] Result grow_id(Library &library, CommunicatorHandle parent, UniqueId *out);
// parent: of those that join, nullptr, and rank and id say where; the others keep their ranks, and may give
// the id.
[[nodiscard]] Result grow(Library &library, CommunicatorHandle parent, int ranks, const UniqueId *id,
                          int rank, CommunicatorHandle *out, const Config *config);

[[nodiscard]] Result finalize(Library &library, CommunicatorHandle handle);
[[nodiscard]] Result destroy(Library &library, CommunicatorHandle handle);
[[nodiscard]] Result abort(Library &library, CommunicatorHandle handle);
[[nodiscard]] Result revoke(Library &library, CommunicatorHandle handle, int flags);

[[nodiscard]] Result async_error(Library &library, CommunicatorHandle handle, Result *out);
[[nodiscard]] Result count(Library &library, CommunicatorHandle handle, int *out);
[[nodiscard]] Result device(Library &library, CommunicatorHandle handle, int *out);
[[nodiscard]] Result rank(Library &library, CommunicatorHandle handle, int *out);

} // namespace singularity::nccl
