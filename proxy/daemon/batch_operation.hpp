// SPDX-License-Identifier: GPL-2.0-or-later
// One operation of cuStreamBatchMemOp, as a client has sent it: alone or in a node of a graph.
#pragma once

#include "session.hpp"

#include <cstring>
#include <type_traits>

namespace singularity::proxyd {

// Whether it is one that is known, and its word is where the session may write.
[[nodiscard]] inline bool is_allowed(Session &session, const CUstreamBatchMemOpParams &operation) {
    // Any number may be there, and reading one that is no value of the enumeration is undefined.
    std::underlying_type_t<CUstreamBatchMemOpType> type{};
    std::memcpy(&type, &operation.operation, sizeof(type));
    switch (type) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return session.reaches(operation.waitValue.address, sizeof(std::uint32_t));
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return session.reaches(operation.waitValue.address, sizeof(std::uint64_t));
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
        return true;
    default:
        return false;
    }
}

} // namespace singularity::proxyd
