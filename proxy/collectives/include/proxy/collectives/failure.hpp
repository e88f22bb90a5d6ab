// SPDX-License-Identifier: GPL-2.0-or-later
// Why a communicator can do nothing any more.
#pragma once

#include <string>

namespace singularity::collectives {

struct Failure {
    bool remote = false; // another member's fault: ncclRemoteError
    std::string text;
};

} // namespace singularity::collectives
