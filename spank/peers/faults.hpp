// SPDX-License-Identifier: GPL-2.0-or-later
// Errors on their way from one process to another.
#pragma once

#include "common/error.hpp"
#include "peers/peer_messages.pb.h"

#include <string>

namespace singularity::peers {

[[nodiscard]] inline wire::Fault fault_of(const Error &error) {
    wire::Fault out;
    out.set_doing(error.doing);
    out.set_on(error.on);
    out.set_why(error.why);
    out.set_code(error.code);
    return out;
}

[[nodiscard]] inline Error error_of(const wire::Fault &fault) {
    return {.doing = fault.doing(), .on = fault.on(), .why = fault.why(), .code = fault.code()};
}

[[nodiscard]] inline std::string findings_text(const Expected<wire::Findings> &found) {
    if (found)
        return found->SerializeAsString();
    wire::Findings out;
    *out.mutable_fault() = fault_of(found.error());
    return out.SerializeAsString();
}

[[nodiscard]] inline Expected<wire::Findings> findings_of(const std::string &text) {
    wire::Findings out;
    if (!out.ParseFromString(text))
        return failure("understand", "a process of this agent's own", "its answer is none", EBADMSG);
    if (out.has_fault())
        return std::unexpected(error_of(out.fault()));
    return out;
}

} // namespace singularity::peers
