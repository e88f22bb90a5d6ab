// SPDX-License-Identifier: GPL-2.0-or-later
// The way from a job's network to the world outside, through this host: the nodes' packets are routed to the
// host by a pair of interfaces, and leave it with the host's address. The kernel takes all of it away with
// the job's network.
#pragma once

#include "common/error.hpp"
#include "links.hpp"
#include "nft.hpp"
#include "plan.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace singularity::network {

// The host's ends of these pairs are called so, and a number; the job's as the second.
inline constexpr const char *kHostEnd = "sng-out";
inline constexpr const char *kJobEnd = "outside";
// Of a job to the outside at a time, and as many from there: those of all jobs and of the host itself share
// one table, net.netfilter.nf_conntrack_max.
inline constexpr std::uint32_t kConnections = 16384;

[[nodiscard]] std::string dotted(std::uint32_t address); // in host byte order

// A file of /proc/sys; those of networks are the calling thread's namespace's.
[[nodiscard]] Expected<void> write_setting(const std::string &path, const std::string &value);

// Whether the kernel has what the job's side needs, in a network namespace that is to be thrown away.
[[nodiscard]] Expected<void> try_way_out();

// Whether the network namespace of the calling thread, a host's, has an address by which others are reached
// over IPv6.
[[nodiscard]] bool host_has_ipv6();

class Gateway {
  public:
    struct Place {
        Links *host; // of the host's namespace, and
        Nft host_rules;
        int host_home;
        Links *own; // of the job's, where the calling thread is, with a bridge
        std::string bridge;
        bool host_ipv6; // host_has_ipv6(), and it forwards
    };
    [[nodiscard]] static Expected<Gateway> make(const Prepare &plan, Place place);

    [[nodiscard]] const std::shared_ptr<const Nft> &host_rules() const { return host_rules_; }
    [[nodiscard]] const std::string &host_end() const { return host_end_; }
    [[nodiscard]] std::uint32_t job_address() const { return job_address_; }
    [[nodiscard]] bool ipv6() const { return ipv6_; }

  private:
    Gateway(Nft host_rules, std::string host_end, std::uint32_t job_address, bool ipv6)
        : host_rules_(std::make_shared<const Nft>(std::move(host_rules))), host_end_(std::move(host_end)),
          job_address_(job_address), ipv6_(ipv6) {}
    std::shared_ptr<const Nft> host_rules_; // the table lives as long
    std::string host_end_;
    std::uint32_t job_address_;
    bool ipv6_;
};

} // namespace singularity::network
