// SPDX-License-Identifier: GPL-2.0-or-later
// Connections that have proved nothing yet have few places, and idle ones must not keep others out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace singularity {

// Which one goes when another comes and all places are taken: the oldest from the address that has most of
// them. So whoever takes the places, and takes them again and again, loses their own; the one of another
// address stays. addresses: of those that have a place, the oldest first; not empty. An index into them.
template <class Address>
[[nodiscard]] std::size_t oldest_of_most(std::span<const Address> addresses) {
    std::size_t found = 0;
    std::ptrdiff_t most = 0;
    for (std::size_t at = 0; at < addresses.size(); ++at) {
        const auto count = std::ranges::count(addresses, addresses[at]);
        if (count > most) {
            found = at;
            most = count;
        }
    }
    return found;
}

} // namespace singularity
