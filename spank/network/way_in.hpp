// SPDX-License-Identifier: GPL-2.0-or-later
// The way from the world outside to ports of a job's nodes that its user has published. Each has a TCP port
// of the host, which is bound here, so that no program has it; what comes for it is sent on, first to the
// job's end of its way out, and from there to the node. Without this nothing leads into a job.
#pragma once

#include "common/error.hpp"
#include "common/name_space.hpp"
#include "common/unique_fd.hpp"
#include "nft.hpp"
#include "plan.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace singularity::network {

class WayIn {
  public:
    struct Place {
        std::shared_ptr<const Nft> host_rules; // with the table of that name, which is ours alone
        std::string host_end;
        std::uint32_t job_address = 0; // of the job's end, in host byte order
        std::shared_ptr<const NameSpace> host_home;
    };
    // In the job's network namespace, where the calling thread is, with a gateway. Nothing is published yet.
    [[nodiscard]] static Expected<WayIn> make(Place place);

    // Of a node with this address. All of its ports, or none. ENOSPC: the range is used up.
    [[nodiscard]] Expected<std::vector<Published>> publish(const Publish &plan, std::uint32_t address);
    // No new connection reaches the node. The host's ports are free after that, and not before.
    [[nodiscard]] Expected<void> close(std::uint32_t node, const std::string &owner);
    [[nodiscard]] Expected<void> close_all();

  private:
    struct Open {
        UniqueFd socket; // bound, and never listens
        Published ports;
    };
    WayIn(Place place, Nft own_rules) : place_(std::move(place)), own_rules_(std::move(own_rules)) {}
    [[nodiscard]] Expected<Open> reserve(const Publish &plan, std::uint32_t address,
                                         std::uint16_t port) const;

    Place place_;
    Nft own_rules_;
    std::map<std::pair<std::uint32_t, std::string>, std::vector<Open>> open_; // of each node and owner
};

// Whether the kernel has what this needs, in a network namespace that is to be thrown away.
[[nodiscard]] Expected<void> try_way_in();

} // namespace singularity::network
