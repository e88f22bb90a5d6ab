// SPDX-License-Identifier: GPL-2.0-or-later
// Networks on this host that several members share: the script of a job of Slurm's that has one host, and its
// steps. Each is a process with a directory of its own (network_client.hpp); it ends when nobody has it any
// more.
#pragma once

#include "agent/worker/paths.hpp"
#include "common/error.hpp"
#include "network_client.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <string>

namespace singularity::agent {

class SharedNetworks {
  public:
    SharedNetworks(std::filesystem::path place, Libraries libraries)
        : place_(std::move(place)), libraries_(std::move(libraries)) {}

    struct Share {
        std::shared_ptr<NetworkClient> network;
        std::string directory; // its name
    };
    // The network of this name, which is made if there is none that goes on.
    [[nodiscard]] Expected<Share> take(const std::string &name);
    // That which an earlier agent has made.
    [[nodiscard]] Expected<Share> adopt(const std::string &name, const std::string &directory);
    // Who has a share is about to end. for_all: whoever comes from now on, as with the next run of the job,
    // gets another network.
    void leave(const Share &share, bool for_all);
    // It has ended.
    void remove(const std::string &directory) const;
    // Once all that an earlier agent had was adopted: what nobody has taken ends.
    void end_others();

  private:
    struct Known {
        std::string name; // empty: nobody comes any more
        std::weak_ptr<NetworkClient> network;
        std::size_t staying = 0; // of those who have it
    };
    std::filesystem::path place_;
    Libraries libraries_;
    std::map<std::string, Known> known_; // by directory
    std::uint64_t last_ = 0;
};

} // namespace singularity::agent
