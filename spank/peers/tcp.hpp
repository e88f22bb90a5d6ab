// SPDX-License-Identifier: GPL-2.0-or-later
// TCP sockets between agents: IPv4, non-blocking, closed on exec; who goes without a word is noticed.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstdint>
#include <string>

namespace singularity::peers {

struct Endpoint {
    std::uint32_t address = 0; // in host byte order
    std::uint16_t port = 0;
    bool operator==(const Endpoint &) const = default;
};
[[nodiscard]] std::string text_of(std::uint32_t address);
[[nodiscard]] std::string text_of(const Endpoint &endpoint);
// "10.0.0.1"; EINVAL for anything else.
[[nodiscard]] Expected<std::uint32_t> address_of(const std::string &text);

[[nodiscard]] Expected<UniqueFd> listen_tcp(const Endpoint &at, int backlog);

// On its way; poll for writing. From a port that root alone can have: so the other side knows that no user
// calls.
[[nodiscard]] Expected<UniqueFd> call_tcp(const Endpoint &to);
// 0, or why it could not be reached.
[[nodiscard]] int call_result(int socket);

struct Accepted {
    UniqueFd socket;
    Endpoint from;
};
// EAGAIN: nobody is there.
[[nodiscard]] Expected<Accepted> accept_tcp(int listener);
[[nodiscard]] constexpr bool is_reserved(std::uint16_t port) { return port < 1024; }

[[nodiscard]] Expected<std::uint32_t> own_address(int socket);

// Blocks: for subprocesses.
[[nodiscard]] Expected<std::uint32_t> resolve(const std::string &host);

} // namespace singularity::peers
