// SPDX-License-Identifier: GPL-2.0-or-later
// The way from a job's network to the world outside, through this host: the nodes' packets are routed to the
// host by a pair of interfaces, and leave it with the host's address. The kernel takes all of it away with
// the job's network.
#pragma once

#include "common/error.hpp"
#include "links.hpp"
#include "nft.hpp"
#include "plan.hpp"

#include <string>

namespace singularity::network {

// The host's ends of these pairs are called so, and a number.
inline constexpr const char *kHostEnd = "sng-out";

// A file of /proc/sys; those of networks are the calling thread's namespace's.
[[nodiscard]] Expected<void> write_setting(const std::string &path, const std::string &value);

// Whether the kernel has what the job's side needs, in a network namespace that is to be thrown away.
[[nodiscard]] Expected<void> try_way_out();

class Gateway {
  public:
    struct Place {
        Links *host; // of the host's namespace, and
        Nft host_rules;
        int host_home;
        Links *own; // of the job's, where the calling thread is, with a bridge
        std::string bridge;
    };
    [[nodiscard]] static Expected<Gateway> make(const Prepare &plan, Place place);

  private:
    explicit Gateway(Nft host_rules) : host_rules_(std::move(host_rules)) {}
    Nft host_rules_; // the table lives as long
};

} // namespace singularity::network
