// SPDX-License-Identifier: GPL-2.0-or-later
// One packet at a time over a control socket; both sides use it.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstddef>
#include <optional>
#include <span>

namespace singularity::proxy_control {

// descriptor -1: none
[[nodiscard]] Expected<void> send_packet(int socket, std::span<const std::byte> bytes, int descriptor,
                                         const Deadline &deadline);
// Exactly as many bytes. An error, code ECONNRESET: the other side has hung up; EPROTO: it sends something
// else.
[[nodiscard]] Expected<void> receive_packet(int socket, std::span<std::byte> bytes, UniqueFd *descriptor,
                                            const Deadline &deadline);
// Whether the other side has hung up, without waiting.
[[nodiscard]] bool has_hung_up(int socket);

} // namespace singularity::proxy_control
