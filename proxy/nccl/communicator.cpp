// SPDX-License-Identifier: GPL-2.0-or-later
#include "communicator.hpp"

namespace singularity::nccl {

Outcome<CommunicatorPointer> known(Library &library, CommunicatorHandle handle, const char *call) {
    if (const auto bad = given(handle, call, "comm"); bad != Result::success)
        return std::unexpected(bad);
    auto found = library.communicators.find(handle);
    if (found == nullptr)
        return refused(Result::invalid_argument, "Error: corrupted comm object detected");
    return found;
}

Result given_if(bool is, const char *call, const char *name) {
    return is ? Result::success : refuse(Result::invalid_argument, "{} : {} argument is NULL", call, name);
}

} // namespace singularity::nccl
