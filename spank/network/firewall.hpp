// SPDX-License-Identifier: GPL-2.0-or-later
// VXLAN believes every packet that reaches its port. nftables decides what does: from other hosts of the job,
// and from nobody's program.
#pragma once

#include "common/error.hpp"
#include "nft.hpp"
#include "plan.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace singularity::network {

// From now on no user of this host can send to the port, of this or any other host, and nothing that passes
// through can either. Stays when the agent ends: other hosts rely on it.
[[nodiscard]] Expected<void> close_port(std::uint16_t port);

// The host forwards packets of IPv4 from now on: those from and to jobs, and no others, if it has forwarded
// none before. Stays when the agent ends: jobs go on.
[[nodiscard]] Expected<void> forward_for_jobs();

// The same for IPv6. What the host's interfaces learn from routers (RFC 4861) they go on learning.
[[nodiscard]] Expected<void> forward_ipv6_for_jobs();
// Whether the calling thread's network namespace does.
[[nodiscard]] bool forwards_ipv6();

// The same for one network, and who may send to it. The kernel takes it away when the object, or its process,
// ends, and lets nobody else touch it.
class Firewall {
  public:
    // In the calling thread's network namespace. Nobody may send to it yet.
    [[nodiscard]] static Expected<Firewall> make(const Prepare &plan);
    [[nodiscard]] Expected<void> admit(const std::vector<std::uint32_t> &hosts) const;

  private:
    Firewall(Nft nft, std::string table) : nft_(std::move(nft)), table_(std::move(table)) {}

    Nft nft_;
    std::string table_;
};

} // namespace singularity::network
