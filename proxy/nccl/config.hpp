// SPDX-License-Identifier: GPL-2.0-or-later
// ncclConfig_t: what a program may ask of a communicator. Only `blocking` changes what is done here; the rest
// is about channels and networks that the proxy does not have, but is checked as NCCL checks it.
#pragma once

#include "outcome.hpp"
#include "proxy/nccl/abi.hpp"

#include <string>

namespace singularity::nccl {

struct Settings {
    bool blocking = true;
    std::string name; // commName; for messages
};

// config: as the program gave it, of any version since 2.14; nullptr: defaults. NCCL_COMM_BLOCKING counts
// more.
[[nodiscard]] Outcome<Settings> settings_of(const Config *config);
// NCCL_COMM_BLOCKING over settings that were inherited.
[[nodiscard]] Settings inherited(const Settings &parent);

} // namespace singularity::nccl
