// SPDX-License-Identifier: GPL-2.0-or-later
// Both ends of a new connection prove that they know the job's key, without showing it: HMAC-SHA256 over who
// speaks, what the connection is for, and random numbers of both sides. Nothing else is read before that.
#pragma once

#include "common/deadline.hpp"
#include "proxy/collectives/job_key.hpp"
#include "socket.hpp"

#include <cstdint>

namespace singularity::collectives {

enum class Purpose : std::uint32_t { rendezvous = 1, peers };

[[nodiscard]] Expected<void> prove_as_caller(Socket &socket, const JobKey &key, Purpose purpose,
                                             const Deadline &deadline);
[[nodiscard]] Expected<void> prove_as_listener(Socket &socket, const JobKey &key, Purpose purpose,
                                               const Deadline &deadline);

// Gives back what OpenSSL keeps for the calling thread. By itself it does that when the thread ends, which
// for one that nobody joins may be while the process ends, and OpenSSL with it.
void end_proofs_of_thread() noexcept;

} // namespace singularity::collectives
