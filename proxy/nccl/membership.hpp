// SPDX-License-Identifier: GPL-2.0-or-later
// What a communicator says to its proxy about itself: joining, how it stands, exchanges between its members,
// leaving. Functions that wait do so on the calling thread, and end when the communicator is cancelled.
#pragma once

#include "communicator.hpp"

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

namespace singularity::nccl {

// How long a communicator is waited for: SINGULARITY_NCCL_TIMEOUT in seconds, half an hour without. Only what
// passes between two questions that the proxy answers counts, so that a checkpoint in between does not.
[[nodiscard]] std::chrono::milliseconds longest_wait();

// With key, rank and size set: registers the member and waits until all have come.
[[nodiscard]] Result join(Library &library, Communicator &communicator);
// Asks once whether it has failed, which then is its state.
void refresh(Library &library, Communicator &communicator);
// Ready for an operation: the result of whatever was under way, an error if the communicator has failed.
[[nodiscard]] Result ready(Library &library, Communicator &communicator);
// Waits until all groups that were issued are complete.
[[nodiscard]] Result flush(Library &library, Communicator &communicator);
enum class Leave : bool { when_complete, abort };
[[nodiscard]] Result leave(Library &library, Communicator &communicator, Leave how);
// Every member gives as many bytes, and has those of all in the order of ranks. number: the same for all
// members, another one for each exchange.
[[nodiscard]] Outcome<std::vector<std::byte>> exchange(Library &library, Communicator &communicator,
                                                       std::uint64_t number, std::span<const std::byte> mine);

} // namespace singularity::nccl
