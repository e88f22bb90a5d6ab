// SPDX-License-Identifier: GPL-2.0-or-later
// Munge credentials around pledges. All functions block: they are for subprocesses.
#pragma once

#include "common/error.hpp"
#include "peers/peer_messages.pb.h"

#include <filesystem>
#include <string>

namespace singularity::peers {

// So long may a credential be on its way; clocks of hosts may differ by no more.
inline constexpr int kCredentialSeconds = 60;

// Readable for root alone, encrypted with AES-256. socket: munged's.
[[nodiscard]] Expected<std::string> make_credential(const wire::Pledge &pledge,
                                                    const std::filesystem::path &socket);

// The pledge of a root process of a host with the same key. A credential of another user, a foreign one, one
// that has expired and one that was read on this host before are refused (codes EPERM, EKEYREJECTED).
[[nodiscard]] Expected<wire::Pledge> read_credential(const std::string &credential,
                                                     const std::filesystem::path &socket);

// Whether munged makes a credential, and believes it, for whoever asks. The reason of an error is munge's
// own.
[[nodiscard]] Expected<void> try_munge(const std::filesystem::path &socket);

} // namespace singularity::peers
