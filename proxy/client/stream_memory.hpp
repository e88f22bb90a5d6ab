// SPDX-License-Identifier: GPL-2.0-or-later
// Stream-ordered allocation and its pools: memory that was freed in a stream is used again in that stream at
// once, and elsewhere when the stream has been waited for.
#pragma once

#include "memory.hpp"

#include <cstdint>

namespace singularity::client {

[[nodiscard]] CUresult allocate_in_stream(const Route &route, std::uint64_t stream, std::uint64_t size,
                                          std::uint64_t pool, std::uint64_t &address);
[[nodiscard]] CUresult free_in_stream(const Route &route, std::uint64_t stream, std::uint64_t address);
// The stream has been waited for; 0: all streams of the context.
void stream_is_done(Context &context, std::uint64_t stream);
// All of the context's streams have been waited for, and memory is needed: everything that is freed goes
// back.
void release_idle(Context &context);
// The context has ended.
void forget_freed(const Context &context);
// Memory of a pool that is freed and not yet given back.
[[nodiscard]] std::uint64_t bytes_to_reuse(std::uint64_t pool);
// Any pool's, in this context.
[[nodiscard]] bool anything_to_reuse(const Context &context);
// Gives back what no stream can still use, until the pool has no more than that.
void trim_pool(std::uint64_t pool, std::uint64_t bytes_to_keep);

} // namespace singularity::client
