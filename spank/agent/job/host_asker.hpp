// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "agent/step/steps.hpp"
#include "peers/peers.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace singularity::agent {

// Where other agents are asked, and our own as if it were one of them.
class HostAsker {
  public:
    virtual ~HostAsker() = default;
    virtual void ask(const std::string &host, peers::wire::Envelope request,
                     std::chrono::milliseconds patience, peers::Peers::OnReply on_reply) = 0;
    [[nodiscard]] virtual std::optional<peers::Peers::Addresses> addresses(const std::string &host) const = 0;
    [[nodiscard]] virtual const std::string &own_host() const = 0;
    // Slurm is told to run the job of this step again.
    virtual void run_again(Rerun rerun) = 0;
    // The batch script that is this step is saved, and runs on.
    virtual void script_saved(const StepKey &key) = 0;
    // An image of this step goes: no image of its script names it.
    virtual void forget_image(const StepKey &key, std::string image) = 0;
};

} // namespace singularity::agent
