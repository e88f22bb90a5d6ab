// SPDX-License-Identifier: GPL-2.0-or-later
// The agent's socket and its one loop. Nothing in it blocks; every wait of a client's has its deadline in
// LiveNode.
#pragma once

#include "common/config.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "live_node.hpp"
#include "peers/peers.hpp"
#include "sender.hpp"
#include "worker.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace singularity::agent {

struct ServerOptions {
    std::filesystem::path socket;
    Surroundings places;
    std::string host; // our own name
    Config::Agents agents;
};

class Server {
  public:
    // The socket listens, and the nodes of an earlier agent are found again.
    [[nodiscard]] static Expected<std::unique_ptr<Server>> open(ServerOptions options);
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;
    Server(Server &&) = delete;
    Server &operator=(Server &&) = delete;
    ~Server();

    // Until SIGTERM or SIGINT. The nodes live on.
    [[nodiscard]] Expected<void> serve();

  private:
    struct Client {
        UniqueFd socket;
        Sender sender;
        bool gone = false;
    };
    struct Held {
        std::unique_ptr<LiveNode> node;
        std::weak_ptr<Client> tied_to;
        std::optional<Deadline>
            tie_patience; // a tied node of an earlier agent: its owner comes again, or it ends
        bool woken = false;
    };
    // A restore whose worker looks for the checkpoint: which node it will be is not known yet.
    struct Finding {
        Worker worker;
        std::shared_ptr<Client> client;
        Asker asker;
        std::string cgroups;
        std::uint32_t proxies = 0;
        node::Descriptors given;
        bool over = false;
    };
    explicit Server(ServerOptions options) : options_(std::move(options)) {}

    [[nodiscard]] Expected<void> prepare();
    void adopt_all();
    [[nodiscard]] Expected<bool> take_signals() const; // false: the end
    void accept_clients();
    void read_client(const std::shared_ptr<Client> &client);
    void end_ties();
    void collect();
    [[nodiscard]] int poll_timeout() const;
    [[nodiscard]] Expected<void> open_peers();

    // server_requests.cpp
    // False: the packet is none of ours.
    [[nodiscard]] bool handle(const std::shared_ptr<Client> &client, node::Packet &packet);
    void create(const std::shared_ptr<Client> &client, Create request, const Asker &asker);
    [[nodiscard]] Expected<void> room_for_one_more(const Sender &sender, const node::Spec &spec) const;
    void list(const std::shared_ptr<Client> &client, const Asker &asker) const;
    // The node, if there is one that the client may touch; else the asker has been told.
    [[nodiscard]] Held *find(const Client &client, const std::string &name, const Asker &asker);

    // server_restore.cpp
    void restore(const std::shared_ptr<Client> &client, const Restore &request, node::Descriptors given,
                 const Asker &asker);
    void read_finding(Finding &finding);
    // The node, or why it cannot be restored.
    [[nodiscard]] Expected<void> restore_found(Finding &finding, WorkFound &&found);

    ServerOptions options_;
    UniqueFd lock_; // on the state directory: one agent at a time
    UniqueFd listener_;
    UniqueFd signals_;
    std::optional<Deadline> accept_again_;
    std::vector<std::shared_ptr<Client>> clients_;
    std::map<std::string, Held> nodes_;
    std::vector<std::unique_ptr<Finding>> findings_;
    std::uint64_t last_name_ = 0;
    std::unique_ptr<peers::Peers> peers_;
};

} // namespace singularity::agent
