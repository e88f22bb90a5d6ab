// SPDX-License-Identifier: GPL-2.0-or-later
// Communicators and collectives: what libnccl.so.2 asks of the proxy (docs/collectives.md).
//
// A communicator has a number of the client's own in all messages, unique among its session's; its key is the
// same for all members. Results that are NCCL's travel in `state`; a message's CUresult says only whether the
// message itself made sense.
#pragma once

#include "proxy/protocol/message.hpp"

namespace singularity::protocol {

inline constexpr std::uint32_t kMostRanks = 65536;
// Operations of one group on one communicator; a longer group travels as several messages with `more`.
inline constexpr std::size_t kMostCollectives = 1024;
// What each member gives to an exchange.
inline constexpr std::size_t kMostExchanged = 256;

enum class CollectiveKind : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    broadcast = 0,
    reduce,
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    gather,
    scatter,
    send,
    receive,
    end
};

// One operation. type, reduction: ncclDataType_t, ncclRedOp_t. count: elements, as the NCCL function counts
// them.
struct CollectiveOperation {
    std::uint32_t kind = 0;      // CollectiveKind
    std::uint32_t type = 0;      // 0 to 11
    std::uint32_t reduction = 0; // 0 to 4, or kPremultipliedSum
    std::uint32_t peer = 0;      // root, or the other side of send and receive
    std::uint64_t count = 0;
    std::uint64_t input = 0; // addresses that the device reaches; 0 where the operation has none
    std::uint64_t output = 0;
    std::uint64_t scalar = 0;         // of a premultiplied sum: a value of `type` in its low bytes, or
    std::uint64_t scalar_address = 0; // where it is when the operation begins; 0: `scalar` counts
};
static_assert(sizeof(CollectiveOperation) == 56);
inline constexpr std::uint32_t kPremultipliedSum = 5;
inline constexpr std::uint32_t kReductions = 6;
inline constexpr std::uint32_t kDataTypes = 12;

// Registers a member in the record's context and returns at once; the state says what becomes of it.
struct JoinCommunicator {
    static constexpr Id kId = Id::join_communicator;
    static constexpr const char *kName = "JoinCommunicator";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t communicator = 0;
    std::array<std::uint64_t, 2> key{};
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return size == 0 || size > kMostRanks || rank >= size ? "no such rank" : nullptr;
    }
};

enum class CommunicatorPhase : std::uint32_t { // NOLINT(performance-enum-size): as on the wire
    joining = 0,
    ready,
    failed,
};

struct CommunicatorStateReply {
    static constexpr std::array<Buffer, 1> kBuffers{{{"text", 1, Nullable::yes}}}; // why it has failed
    std::uint32_t phase = 0;                                                       // CommunicatorPhase
    std::uint32_t result = 0;    // ncclResult_t of a failure
    std::uint64_t completed = 0; // groups, from the first on
};

// Answered when the phase is no longer joining, or `completed` has been reached, or after wait_ms.
struct CommunicatorState {
    static constexpr Id kId = Id::communicator_state;
    static constexpr const char *kName = "CommunicatorState";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = CommunicatorStateReply;
    std::uint64_t communicator = 0;
    std::uint64_t completed = 0; // groups that are waited for; 0: none
    std::uint32_t wait_ms = 0;
    std::uint32_t reserved = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return wait_ms > 1000 ? "nobody waits for more than a second" : nullptr;
    }
};

// The operations of one group on one communicator, after what the stream has to do before. group: counts from
// 1, without gaps, for each communicator.
struct IssueCollectives {
    static constexpr Id kId = Id::issue_collectives;
    static constexpr const char *kName = "IssueCollectives";
    static constexpr std::array<Buffer, 1> kBuffers{{{"operations", sizeof(CollectiveOperation)}}};
    using Reply = NoReply;
    std::uint64_t communicator = 0;
    std::uint64_t stream = 0;
    std::uint64_t group = 0;
    std::uint64_t more = 0; // 1: the next message belongs to the same group and stream
    [[nodiscard]] const char *wrong(const std::array<View, 1> &buffers) const {
        const auto count = buffers[0].bytes.size() / sizeof(CollectiveOperation);
        return count == 0 || count > kMostCollectives ? "no such number of operations"
               : more > 1                             ? "it is more, or it is not"
                                                      : nullptr;
    }
};

struct ExchangeReply {
    static constexpr std::array<Buffer, 1> kBuffers{
        {{"all", 1, Nullable::yes}}}; // in order of rank; absent: see state
    std::uint64_t communicator = 0;
};

// Every member gives as many bytes and gets all of them: for splits. In order with groups; `group` as there.
struct ExchangeWithMembers {
    static constexpr Id kId = Id::exchange_with_members;
    static constexpr const char *kName = "ExchangeWithMembers";
    static constexpr std::array<Buffer, 1> kBuffers{{{"mine"}}};
    using Reply = ExchangeReply;
    std::uint64_t communicator = 0;
    std::uint64_t group = 0;
    std::uint64_t within_ms = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 1> &buffers) const {
        return buffers[0].bytes.empty() || buffers[0].bytes.size() > kMostExchanged ? "no such size"
                                                                                    : nullptr;
    }
};

// abort: 1 ends what is under way, and the other members fail; 0 leaves when all groups are complete.
struct LeaveCommunicator {
    static constexpr Id kId = Id::leave_communicator;
    static constexpr const char *kName = "LeaveCommunicator";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = Nothing;
    std::uint64_t communicator = 0;
    std::uint64_t abort = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return abort > 1 ? "it is aborted, or it is not" : nullptr;
    }
};

} // namespace singularity::protocol
