// SPDX-License-Identifier: GPL-2.0-or-later
// Communicators and collectives. What becomes of a communicator is its state, not a message's result.
#include "handlers.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd::handlers {

namespace {

// ncclResult_t
constexpr std::uint32_t kInternalError = 3;
constexpr std::uint32_t kRemoteError = 6;

// A longer text is not one that anybody reads.
constexpr std::size_t kMostText = 1024;
// An exchange is waited for in parts: the session may end.
constexpr std::chrono::milliseconds kPart{100};
constexpr std::uint64_t kMostWaiting = std::uint64_t{24} * 3600 * 1000;

std::span<std::byte> kept(Call &call, std::span<const std::byte> bytes) {
    const auto storage = call.storage(bytes.size());
    std::ranges::copy(bytes, storage.begin());
    return storage;
}

} // namespace

CUresult handle(Call &call, const Request<protocol::JoinCommunicator> &request,
                Reply<protocol::JoinCommunicator> & /*reply*/) {
    const auto &fixed = request.fixed;
    std::string broken;
    const auto result = call.session().communicators().join(
        fixed.communicator, call.header().context,
        {.key = fixed.key, .rank = fixed.rank, .size = fixed.size, .completed = 0}, broken);
    return broken.empty() ? result : call.broken(std::move(broken));
}

CUresult handle(Call &call, const Request<protocol::CommunicatorState> &request,
                Reply<protocol::CommunicatorState> &reply) {
    const auto &fixed = request.fixed;
    const auto member = call.session().communicators().find(fixed.communicator);
    if (member == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    const auto state =
        member->wait(fixed.completed, Deadline::after(std::chrono::milliseconds(fixed.wait_ms)));
    reply.fixed.phase = std::to_underlying(state.phase);
    reply.fixed.completed = state.completed;
    if (state.phase == protocol::CommunicatorPhase::failed) {
        reply.fixed.result = state.failure.remote ? kRemoteError : kInternalError;
        const auto text = std::string_view(state.failure.text).substr(0, kMostText);
        reply.buffers[0] = {.bytes = kept(call, std::as_bytes(std::span(text))), .present = true};
    }
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::IssueCollectives> &request) {
    const auto &fixed = request.fixed;
    const auto stream = call.stream(fixed.stream);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    const auto count = protocol::element_count<protocol::CollectiveOperation>(request.buffers[0]);
    const auto operations = call.elements<protocol::CollectiveOperation>(count);
    for (std::size_t index = 0; index < count; ++index)
        operations[index] = protocol::element<protocol::CollectiveOperation>(request.buffers[0], index);
    std::string broken;
    const auto result = call.session().communicators().issue(fixed, *stream, operations, broken);
    return broken.empty() ? result : call.broken(std::move(broken));
}

// In turn with groups: it is begun on the thread that reads the ring, and waited for on another.
CUresult handle(Call &call, const Request<protocol::ExchangeWithMembers> &request,
                Reply<protocol::ExchangeWithMembers> &reply) {
    const auto &fixed = request.fixed;
    const auto member = call.session().communicators().find(fixed.communicator);
    if (member == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    reply.fixed.communicator = fixed.communicator;
    auto exchange = member->exchange(fixed.group, request.buffers[0].bytes);
    if (!exchange)
        return call.broken(exchange.error().message());
    if (!call.may_block())
        return call.later();
    const auto deadline = Deadline::after(std::chrono::milliseconds(std::min(fixed.within_ms, kMostWaiting)));
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
        auto finished = member->finish(**exchange, Deadline::after(std::min(left, kPart)));
        if (finished)
            break;
        if (finished.error().code != ETIMEDOUT || deadline.expired() || call.session().ending())
            return CUDA_SUCCESS; // nothing of all: the state says why
    }
    reply.buffers[0] = {.bytes = kept(call, (*exchange)->all), .present = true};
    return CUDA_SUCCESS;
}

CUresult handle(Call &call, const Request<protocol::LeaveCommunicator> &request,
                Reply<protocol::LeaveCommunicator> & /*reply*/) {
    return call.session().communicators().leave(request.fixed.communicator, request.fixed.abort != 0);
}

} // namespace singularity::proxyd::handlers
