// SPDX-License-Identifier: GPL-2.0-or-later
// Name servers that listen at the host's loopback, as systemd-resolved does at 127.0.0.53: a node has a
// loopback of its own, where they are not. This listens at their addresses in the node, and asks them on the
// host. Of what is asked and answered it reads the number alone.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/name_space.hpp"
#include "common/outside.hpp"
#include "common/unique_fd.hpp"
#include "name_stream.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <netinet/in.h>

namespace singularity::network {

inline constexpr std::uint16_t kNamePort = 53;

// Of what a resolv.conf(5) says: the IPv4 servers of 127.0.0.0/8, in host byte order, each once. Like the
// resolver it reads no more than three servers.
[[nodiscard]] std::vector<std::uint32_t> loopback_servers(std::string_view resolv_conf);

// Those of them that jobs may ask.
[[nodiscard]] std::vector<std::uint32_t> allowed_servers(std::vector<std::uint32_t> servers,
                                                         const Outside &outside);

// One node's. One thread.
class NameRelay {
  public:
    // host: where the servers are. The calling thread visits it, and the node, for moments.
    [[nodiscard]] static Expected<NameRelay> make(const NameSpace &node,
                                                  std::shared_ptr<const NameSpace> host,
                                                  const std::vector<std::uint32_t> &servers);

    // There is something to do when it is readable, and when the deadline has passed.
    [[nodiscard]] int fd() const { return events_.get(); }
    [[nodiscard]] std::optional<Deadline> next_deadline() const;
    void work();

  private:
    struct Question {
        sockaddr_in from{}; // in the node
        std::uint16_t number = 0;
        std::string text; // for a refusal; empty: it is too long for that
        Deadline until;
    };
    struct Server {
        std::uint32_t address = 0;
        UniqueFd in_node;                        // UDP
        UniqueFd on_host;                        // UDP, connected to the server
        UniqueFd listener;                       // TCP, in the node
        std::map<std::uint16_t, Question> asked; // by the number that the server was told
        std::deque<std::uint16_t> order;         // of `asked`, the oldest first; some have been answered
        std::uint16_t last = 0;
        bool full = false; // nobody listens for more streams
    };

    NameRelay(UniqueFd events, std::shared_ptr<const NameSpace> host)
        : events_(std::move(events)), host_(std::move(host)) {}
    [[nodiscard]] Expected<void> serve(const NameSpace &node, std::uint32_t address);
    [[nodiscard]] Expected<void> watch(const UniqueFd &fd, std::uint32_t events, std::uint64_t key) const;
    static void ask(Server &server);
    static void answer(Server &server);
    static void refuse_all(Server &server);
    static bool has_room(Server &server);
    void accept(std::size_t number);
    // False: it failed.
    [[nodiscard]] bool listen_for(std::size_t server, std::uint32_t events) const;
    void listen_again();

    UniqueFd events_; // epoll
    std::shared_ptr<const NameSpace> host_;
    std::vector<Server> servers_;
    std::map<std::uint64_t, NameStream> streams_;
    std::vector<std::uint64_t> unfinished_; // streams that have more to do
    std::uint64_t next_ = 0;
};

} // namespace singularity::network
