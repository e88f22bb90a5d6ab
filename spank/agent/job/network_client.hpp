// SPDX-License-Identifier: GPL-2.0-or-later
// The agent's end of a singularity-network, the process that holds a job's network on this host. Nothing
// blocks.
#pragma once

#include "agent/worker/paths.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "network/messages.hpp"
#include "node/seqpacket.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include <poll.h>

namespace singularity::agent {

class NetworkClient {
  public:
    // directory: root's alone; the socket by which the process is found again is made there.
    [[nodiscard]] static Expected<NetworkClient> start(const Libraries &libraries,
                                                       const std::filesystem::path &directory);
    // ECONNREFUSED, ENOENT: it has ended.
    [[nodiscard]] static Expected<NetworkClient> adopt(const std::filesystem::path &directory);

    // Of a network that has ended.
    [[nodiscard]] static NetworkClient none() { return NetworkClient(UniqueFd()); }

    using OnReply = std::function<void(Expected<node::Packet>)>; // of no other type than `Failed` or Reply
    template <class Reply, class Request>
    void ask(const Request &request, std::function<void(Expected<Reply>)> on_reply,
             std::span<const int> descriptors = {}) {
        const auto token = ++last_token_;
        send(token, node::encode(request, token), descriptors,
             [on_reply = std::move(on_reply)](Expected<node::Packet> packet) {
                 if (!packet)
                     return on_reply(propagate(packet));
                 if (auto reply = node::decode<Reply>(packet->bytes))
                     return on_reply(std::move(*reply));
                 on_reply(why(*packet));
             });
    }
    // The reply is Done, and comes with one descriptor.
    template <class Request>
    void ask_for_descriptor(const Request &request, std::function<void(Expected<UniqueFd>)> on_reply) {
        const auto token = ++last_token_;
        send(token, node::encode(request, token), {},
             [on_reply = std::move(on_reply)](Expected<node::Packet> packet) {
                 if (!packet)
                     on_reply(propagate(packet));
                 else if (node::decode<network::Done>(packet->bytes) && packet->descriptors.size() == 1)
                     on_reply(UniqueFd(packet->descriptors.take(0)));
                 else
                     on_reply(why(*packet));
             });
    }
    // It ends, and the kernel takes the network away. Without this it ends with the last node.
    void end();

    // The process has ended, and the network with it.
    [[nodiscard]] bool lost() const { return !socket_; }
    void watch(std::vector<pollfd> &fds) const;
    [[nodiscard]] std::optional<Deadline> next_deadline() const;
    void handle();

  private:
    struct Pending {
        Deadline deadline;
        OnReply on_reply;
    };
    explicit NetworkClient(UniqueFd socket) : socket_(std::move(socket)) {}
    void send(std::uint32_t token, const std::string &bytes, std::span<const int> descriptors,
              OnReply on_reply);
    void fail(const Error &error);
    [[nodiscard]] static std::unexpected<Error> why(const node::Packet &packet);

    UniqueFd socket_;
    std::uint32_t last_token_ = 0;
    std::map<std::uint32_t, Pending> pending_;
};

} // namespace singularity::agent
