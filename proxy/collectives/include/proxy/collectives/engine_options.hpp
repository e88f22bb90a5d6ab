// SPDX-License-Identifier: GPL-2.0-or-later
// With what an engine is started.
#pragma once

#include "proxy/collectives/job_key.hpp"

#include <string>

namespace singularity::collectives {

struct EngineOptions {
    std::string rendezvous; // its address; empty: all members are in this process
    std::string host;    // this one's name: processes with the same name share memory; empty: the machine's
    std::string address; // where processes of other hosts reach this one: tcp:HOST:PORT; empty: nowhere
    JobKey key{};
    bool links = false; // its movers have links to other devices
};

} // namespace singularity::collectives
