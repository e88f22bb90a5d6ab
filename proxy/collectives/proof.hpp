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

} // namespace singularity::collectives
