// SPDX-License-Identifier: GPL-2.0-or-later
// Communicators and collectives. Nothing serves them yet: a client is told so.
#include "handlers.hpp"

namespace singularity::proxyd::handlers {

CUresult handle(Call & /*call*/, const Request<protocol::JoinCommunicator> & /*request*/,
                Reply<protocol::JoinCommunicator> & /*reply*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult handle(Call & /*call*/, const Request<protocol::CommunicatorState> & /*request*/,
                Reply<protocol::CommunicatorState> & /*reply*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult handle(Call & /*call*/, const Request<protocol::IssueCollectives> & /*request*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult handle(Call & /*call*/, const Request<protocol::ExchangeWithMembers> & /*request*/,
                Reply<protocol::ExchangeWithMembers> & /*reply*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult handle(Call & /*call*/, const Request<protocol::LeaveCommunicator> & /*request*/,
                Reply<protocol::LeaveCommunicator> & /*reply*/) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

} // namespace singularity::proxyd::handlers
