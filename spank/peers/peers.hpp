// SPDX-License-Identifier: GPL-2.0-or-later
// The agents of other hosts: whom this one asks, and who asks it. One thread, nothing blocks; whoever owns
// the object polls what watch() names and calls handle().
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "connection.hpp"
#include "peers/peer_messages.pb.h"
#include "refusals.hpp"
#include "subprocess.hpp"
#include "tcp.hpp"

#include <chrono>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

namespace singularity::peers {

struct PeersOptions {
    std::string host;            // our own name
    std::string bind;            // IPv4 address to listen on; empty: nobody can call
    std::uint16_t port = 0;      // of every agent
    std::filesystem::path munge; // munged's socket
};

class Peers {
  public:
    // Called once, later: with the reply, which may be a fault, or with why there is none: the host was not
    // reached, or does not answer.
    using OnReply = std::function<void(Expected<wire::Envelope>)>;
    // How a request is answered, once, now or later; who asked may have gone by then.
    using Answer = std::function<void(wire::Envelope)>;
    struct Caller {
        std::string host;
        Endpoint endpoint;
        std::uint32_t own_address = 0; // by which it has reached us
    };
    using OnRequest = std::function<void(const Caller &, wire::Envelope, Answer)>;

    [[nodiscard]] static Expected<std::unique_ptr<Peers>> open(PeersOptions options, OnRequest on_request);

    [[nodiscard]] const std::string &host() const { return options_.host; }
    // token is filled in.
    void ask(const std::string &host, wire::Envelope request, std::chrono::milliseconds patience,
             OnReply on_reply);
    // Of the connection to the host, if there is one: theirs and our own.
    struct Addresses {
        std::uint32_t theirs = 0;
        std::uint32_t own = 0;
    };
    [[nodiscard]] std::optional<Addresses> addresses(const std::string &host) const;

    void watch(std::vector<pollfd> &fds) const;
    [[nodiscard]] std::optional<Deadline> next_deadline() const;
    void handle();

  private:
    struct Pending {
        wire::Envelope request;
        Deadline deadline;
        OnReply on_reply;
        bool sent = false;
        Deadline::Clock::time_point asked = Deadline::Clock::now();
    };
    // To one host: its address is looked for, then there is a connection.
    struct Outgoing {
        std::optional<Subprocess> search;
        std::unique_ptr<Connection> connection;
        std::map<std::uint32_t, Pending> pending;
        std::uint32_t last_token = 0;
        Deadline::Clock::time_point heard; // anything at all
        Deadline idle = Deadline::after(std::chrono::milliseconds(0));
    };
    struct Incoming {
        Connection connection;
        std::size_t requests = 0; // not answered yet
        bool over = false;
    };
    Peers(PeersOptions options, OnRequest on_request)
        : options_(std::move(options)), on_request_(std::move(on_request)) {}

    void accept();
    [[nodiscard]] std::optional<std::string> no_room_for(const Endpoint &from) const;
    void make_room_for(const Endpoint &from);
    void handle_incoming(const std::shared_ptr<Incoming> &one);
    void handle_outgoing(const std::string &host, Outgoing &one);
    [[nodiscard]] Expected<void> begin(const std::string &host, Outgoing &one);
    [[nodiscard]] Expected<void> work(const std::string &host, Outgoing &one);
    static void fail(Outgoing &one, const Error &error);
    [[nodiscard]] static bool waits(const Outgoing &one, bool sent);

    PeersOptions options_;
    OnRequest on_request_;
    UniqueFd listener_;
    std::optional<Deadline> accept_again_;
    std::list<std::shared_ptr<Incoming>> incoming_;
    std::map<std::string, Outgoing> outgoing_;
    RefusalLog refusals_;
};

} // namespace singularity::peers
