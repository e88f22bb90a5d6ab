// SPDX-License-Identifier: GPL-2.0-or-later
// The IPv6 address that goes with an IPv4 address of ours: of a node, or of an end of a job's way out. It is
// the same on every host, as that is, and nobody outside of the job's network sees it.
#pragma once

#include <cstdint>

#include <netinet/in.h>

namespace singularity {

// Of fd53:696e:6775::/48, which nobody else uses (RFC 4193), the addresses whose last 32 bits are the IPv4
// address.
inline constexpr std::uint32_t kNodePrefix = 96; // bits before those; a network of /24 becomes one of /120
inline constexpr const char *kNodeAddresses = "fd53:696e:6775::/48";

[[nodiscard]] constexpr in6_addr ipv6_of(std::uint32_t address) { // in host byte order
    in6_addr out{};
    out.s6_addr[0] = 0xfd;
    out.s6_addr[1] = 0x53;
    out.s6_addr[2] = 0x69;
    out.s6_addr[3] = 0x6e;
    out.s6_addr[4] = 0x67;
    out.s6_addr[5] = 0x75;
    for (unsigned byte = 0; byte < 4; ++byte)
        out.s6_addr[12 + byte] = static_cast<std::uint8_t>(address >> (24 - 8 * byte));
    return out;
}

} // namespace singularity
