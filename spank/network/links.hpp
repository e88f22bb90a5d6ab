// SPDX-License-Identifier: GPL-2.0-or-later
// Network interfaces through rtnetlink(7): one request, one answer.
#pragma once

#include "common/error.hpp"
#include "ip_address.hpp"
#include "plan.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <libmnl/libmnl.h>

namespace singularity::network {

enum class PortState : std::uint8_t { closed = 0, forwards = 3 }; // BR_STATE_DISABLED, BR_STATE_FORWARDING

// Speaks of the network namespace that the thread was in when it was opened, from anywhere.
class Links {
  public:
    [[nodiscard]] static Expected<Links> open();

    [[nodiscard]] Expected<void> make_bridge(const std::string &name);
    struct Vxlan {
        std::string name;
        std::uint32_t vni = 0;
        std::uint16_t port = 0;
        std::uint32_t local = 0; // host byte order
        std::uint32_t mtu = 0;
        int home = -1; // the namespace in which the interface appears; its packets leave through ours
    };
    // EEXIST: the machine has one of this VNI and port already.
    [[nodiscard]] Expected<void> make_vxlan(const Vxlan &wanted);
    // A pair: one end here, the other in the namespace `home`. EEXIST: there is an interface of that name.
    [[nodiscard]] Expected<void> make_pair(const std::string &name, const std::string &other, int home);
    // Of IPv6 also: nobody is asked whether somebody else has it.
    [[nodiscard]] Expected<void> add_address(const std::string &name, const IpAddress &address,
                                             std::uint32_t prefix);
    struct Route {
        IpAddress to;
        std::uint32_t prefix = 0; // 0: the default route of the address's family
        std::optional<IpAddress> gateway;
        std::uint32_t metric = 0; // 0: the kernel's choice
    };
    [[nodiscard]] Expected<void> add_route(const std::string &name, const Route &route);
    // ESRCH: there is none.
    [[nodiscard]] Expected<void> remove_route(const std::string &name, const Route &route);
    // For good: nobody is asked for it.
    [[nodiscard]] Expected<void> add_neighbour(const std::string &name, const IpAddress &address,
                                               const Mac &mac);
    // Frames for the address, or those for everybody (no address), go to this host as well.
    [[nodiscard]] Expected<void> send_to(const std::string &vxlan, const std::optional<Mac> &mac,
                                         std::uint32_t host);
    // The interface goes to another namespace, under another name.
    [[nodiscard]] Expected<void> move(const std::string &name, int home, const std::string &new_name);
    struct Change {
        std::optional<std::uint32_t> mtu;
        std::optional<Mac> mac;
        std::optional<std::string> bridge; // to be a port of
        bool up = false;
    };
    [[nodiscard]] Expected<void> change(const std::string &name, const Change &change);
    // Of a bridge's port: nothing passes one that is closed, and no link goes down.
    [[nodiscard]] Expected<void> set_port(const std::string &name, PortState state);
    // Nothing passes from one isolated port to another; all of them reach the bridge itself.
    [[nodiscard]] Expected<void> isolate_port(const std::string &name, bool isolated = true);

  private:
    struct Close {
        void operator()(mnl_socket *socket) const { mnl_socket_close(socket); }
    };
    using Fill = std::function<void(nlmsghdr *)>;
    [[nodiscard]] Expected<void> change_port(const std::string &name, const Fill &fill);
    [[nodiscard]] Expected<void> ask_about(const std::string &name, const Route &route, std::uint16_t type,
                                           unsigned flags);
    explicit Links(std::unique_ptr<mnl_socket, Close> socket) : socket_(std::move(socket)) {}
    [[nodiscard]] Expected<void> ask(const std::string &doing, const std::string &on, const Fill &fill);
    [[nodiscard]] Expected<std::uint32_t> index_of(const std::string &name);

    std::unique_ptr<mnl_socket, Close> socket_;
};

} // namespace singularity::network
