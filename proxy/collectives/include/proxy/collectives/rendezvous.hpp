// SPDX-License-Identifier: GPL-2.0-or-later
// Where the processes of one job find out who the others of a communicator are. It carries no data, and a
// communicator that has come about does not need it any more.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "proxy/collectives/job_key.hpp"

#include <memory>
#include <string>

namespace singularity::collectives {

class ListeningSocket;

class Rendezvous {
  public:
    // address: unix:PATH, unix:@NAME, tcp:HOST:PORT; port 0 and an empty name choose one.
    [[nodiscard]] static Expected<std::unique_ptr<Rendezvous>> start(const std::string &address,
                                                                     const JobKey &key);
    // At a socket that listens already.
    [[nodiscard]] static Expected<std::unique_ptr<Rendezvous>> start(UniqueFd listening, const JobKey &key);
    Rendezvous(const Rendezvous &) = delete;
    Rendezvous &operator=(const Rendezvous &) = delete;
    Rendezvous(Rendezvous &&) = delete;
    Rendezvous &operator=(Rendezvous &&) = delete;
    ~Rendezvous();

    // Where it really is.
    [[nodiscard]] std::string address() const;

  private:
    class Server;
    [[nodiscard]] static Expected<std::unique_ptr<Rendezvous>> serve(ListeningSocket listener,
                                                                     const JobKey &key);
    explicit Rendezvous(std::unique_ptr<Server> server);
    std::unique_ptr<Server> server_;
};

} // namespace singularity::collectives
